"""
Quality of recall on data with known answers.

`python -m benchmarks.recall_quality` measures recall by meaning, by words and by both (hybrid), with the model in
8-bit integers and in full precision, beside a floor: plain SQLite full text. The data is no part of the repository
(LoCoMo is CC BY-NC): `--data` names its folder, which has locomo-dev.json, scifact-dev.json.gz and devbench.json.

- LoCoMo, sessions: one memory per session of a conversation (its date, then "speaker: text" lines), recalled among
  that conversation's; gold are the sessions of the evidence. One store: all conversations' sessions together.
  Turns: one memory per turn. Questions without evidence, or with evidence that is not in the conversation, are left out.
- SciFact (BEIR): a claim finds the abstracts that support or refute it.
- devbench: thirty memories of a developer, twenty questions; gold are the memories with an expected tag.

frac@k is the share of the gold among the first k, any@k and all@k whether some or all of it is there, MRR the mean of
1/rank of the first gold one within 20, nDCG@10 as usual. Each question counts once. LoCoMo's categories are given by number, as
their names differ between papers. Recalled are documents, not answers: no language model takes part.
"""

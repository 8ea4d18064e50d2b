"""
Quality of recall on data with known answers.

`python -m benchmarks.recall_quality` measures the product's recall by meaning, by words and by both (hybrid), beside a floor: plain SQLite
full text. `--out` keeps each question's result, and `--against` compares with an earlier run, with paired bootstrap intervals.
`--confidence` asks each question again without its answers. All data but the agents' memories is no part of the repository (LoCoMo is
CC BY-NC): `--data` names its folder, which has locomo-dev.json, scifact-dev.json.gz, devbench.json and languages-dev.json.

- LoCoMo, sessions: one memory per session of a conversation (its date, then "speaker: text" lines), recalled among
  that conversation's; gold are the sessions of the evidence. One store: all conversations' sessions together.
  Turns: one memory per turn. Questions without evidence, or with evidence that is not in the conversation, are left out.
- SciFact (BEIR): a claim finds the abstracts that support or refute it.
- devbench: thirty memories of a developer, twenty questions; gold are the memories with an expected tag.
- agents: 168 memories of coding agents and 240 questions, made by the rules in `agent_memories`.
- paraphrases, same language, to English: 36 facts in nine languages among the memories of devbench, asked in other words: in English, in
  the language of the fact, and in that language about the English text.

frac@k is the share of the gold among the first k, any@k and all@k whether some or all of it is there, MRR the mean of
1/rank of the first gold one within 20, nDCG@10 as usual. Each question counts once. LoCoMo's categories are given by number, as
their names differ between papers. Recalled are documents, not answers: no language model takes part.
"""

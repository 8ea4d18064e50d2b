"""
Memory beside its peers, in one run: `python -m benchmarks.peers --peers FOLDER --data FOLDER`.

All get the same vectors, from one loopback service that speaks OpenAI's `/v1/embeddings` with our built-in model behind it, and keeps
what it has embedded: every text is embedded once before anything is timed, so that what is timed is the memory, not the model.
Each mode of recall has a store and a process of its own, as a server may keep the vectors of questions that it was asked before.
Peers that are libraries are called inside a process of their own, with no HTTP and no key between, and are timed there: that is
in their favour. Rookery and Hindsight are servers, called over HTTP. Peers take turns, text by text and question by question, and each is
first in turn.

A peer embeds a whole text, of which the model reads the first 256 tokens; Rookery embeds it in chunks. That is what each does by itself.

Called as their makers would for texts that are stored as they are, without a language model: mem0 with `infer=False` on its embedded
Qdrant (vectors alone there), mcp-memory-service without its semantic deduplication (which drops texts that are alike), LangGraph's
store in memory and on SQLite (vectors alone). Hindsight's embedded PostgreSQL refuses root, and is run as nobody.
"""

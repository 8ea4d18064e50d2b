"""Texts for the tests of AI detection: public domain, and texts that a language model wrote for these tests."""

from __future__ import annotations

LINCOLN = """
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and dedicated
to the proposition that all men are created equal.

Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can long
endure. We are met on a great battle-field of that war. We have come to dedicate a portion of that field, as a final resting
place for those who here gave their lives that that nation might live. It is altogether fitting and proper that we should do
this.

But, in a larger sense, we can not dedicate -- we can not consecrate -- we can not hallow -- this ground. The brave men,
living and dead, who struggled here, have consecrated it, far above our poor power to add or detract. The world will little
note, nor long remember what we say here, but it can never forget what they did here. It is for us the living, rather, to be
dedicated here to the unfinished work which they who fought here have thus far so nobly advanced. It is rather for us to be
here dedicated to the great task remaining before us -- that from these honored dead we take increased devotion to that cause
for which they gave the last full measure of devotion -- that we here highly resolve that these dead shall not have died in
vain -- that this nation, under God, shall have a new birth of freedom -- and that government of the people, by the people,
for the people, shall not perish from the earth.
""".strip()
"""The Gettysburg Address, 1863."""

AUSTEN = """
It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.

However little known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so well
fixed in the minds of the surrounding families, that he is considered as the rightful property of some one or other of their
daughters.

"My dear Mr. Bennet," said his lady to him one day, "have you heard that Netherfield Park is let at last?"

Mr. Bennet replied that he had not.

"But it is," returned she; "for Mrs. Long has just been here, and she told me all about it."

Mr. Bennet made no answer.

"Do not you want to know who has taken it?" cried his wife impatiently.

"You want to tell me, and I have no objection to hearing it."

This was invitation enough.

"Why, my dear, you must know, Mrs. Long says that Netherfield is taken by a young man of large fortune from the north of
England; that he came down on Monday in a chaise and four to see the place, and was so much delighted with it that he agreed
with Mr. Morris immediately; that he is to take possession before Michaelmas, and some of his servants are to be in the house
by the end of next week."
""".strip()
"""The beginning of Pride and Prejudice, 1813."""

MODEL_ESSAY = """
In today's rapidly evolving digital landscape, effective communication has become more important than ever before.
Organizations of all sizes must navigate a complex web of channels, platforms, and audiences, each with its own unique
challenges and opportunities. By embracing a strategic approach, leaders can foster meaningful connections, enhance
collaboration, and ultimately drive long-term success.

First and foremost, clarity plays a crucial role in ensuring that every message resonates with its intended audience. When
individuals take the time to understand the needs and perspectives of others, they create an environment in which trust can
flourish. Furthermore, active listening allows teams to identify potential misunderstandings early, fostering a culture of
openness and mutual respect.

Moreover, technology offers a wide range of tools that can significantly improve the way people share information. From
collaborative documents to video conferencing platforms, these innovations enable seamless interaction across geographical
boundaries. However, it is important to recognize that technology alone is not sufficient; it must be complemented by
empathy, adaptability, and a genuine commitment to continuous improvement.

In conclusion, effective communication is not merely a skill but a fundamental pillar of success in the modern world. By
prioritizing clarity, embracing innovation, and nurturing meaningful relationships, organizations can overcome challenges and
unlock their full potential.
""".strip()
"""An essay of a language model, as asked for one in its usual style."""

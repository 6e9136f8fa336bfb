# The first one has 10 s, and reviews of two jobs; the third has 5 s.
0 connect 1 first
0 connect 3 third
0 take a b c d e
  ask 1/1: a b
  ask 1/2: c d
4 allow 1 1 a
  job a: handed on, approved by first
# It has said something, so that it is not silent before 14. What it was asked at 0 has
# its time until 10 all the same.
9.9 wait
10 wait
  job b: timed out: admission controller first did not answer within 10s
  job c: timed out: admission controller first did not answer within 10s
  job d: timed out: admission controller first did not answer within 10s
  ask 1/3: e
# A late verdict is no lie, and changes nothing.
11 allow 1 2 c d
12 allow 1 2 c
  an answer to what was not asked: it has no batch 2 without its verdicts
# The one that is left is asked of nobody else: its controller goes.
13 disconnect 1
  job e: handed on, approved by

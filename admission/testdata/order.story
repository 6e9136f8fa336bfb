# Three controllers: first (instance), second (group), third (project). One job after the
# other passes them in that order, whichever connects first.
0 connect 3 third
0 connect 2 second
0 take a
  job a: handed on, approved by
0.5 connect 1 first
1 take a b
  ask 1/1: a b
2 allow 1 1 a b
  ask 2/1: a b
3 allow 2 1 b
  ask 3/1: b
4 deny 3 1 b
  job b: rejected: admission controller third: no
5 allow 2 1 a
  ask 3/2: a
6 allow 3 2 a
  job a: approved by first, second, third

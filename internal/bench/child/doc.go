// Package child runs this program again in another role, because what is measured
// runs in processes of their own: runners and workers are not in the router's
// process anywhere else either.
//
// Parent and child talk in lines, over the child's standard input and output. A
// child leaves when its input ends, which it does when the parent is gone.
package child

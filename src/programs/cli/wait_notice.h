/* programs/cli/wait_notice.h: tells the user of a terminal which host a command waits for. A thread
 * looks at the requests a few times a second, and prints a line on stderr after 3 s without a byte,
 * then at most every 5 s if the attempt changed, else every 20 s. On other outputs it is silent.
 *
 *   start --> lines --> stop
 *
 * Owner: main. Threads: one of its own. Memory: static. Bound: a line at most every 5 s. */
#ifndef PROGRAMS_CLI_WAIT_NOTICE_H
#define PROGRAMS_CLI_WAIT_NOTICE_H

void wait_notice_start(void); /* does nothing if stderr is no terminal */
void wait_notice_stop(void);

#endif

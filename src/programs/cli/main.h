/* programs/cli/main.h: what the commands ask of main: has someone pressed Ctrl-C?
 *
 *   ends at once --main_defer_signals(true)--> a signal is noted --again--> ends at once
 *
 * Owner: main. Threads: one. Memory: none. Bound: none. */
#ifndef PROGRAMS_CLI_MAIN_H
#define PROGRAMS_CLI_MAIN_H

#include <stdbool.h>

/* true: a signal is only noted, and the command sees it here within its own wait. */
void main_defer_signals(bool on);
/* The signal's number; 0: none came. */
int main_signal(void);

#endif

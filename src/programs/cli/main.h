/* programs/cli/main.h: signals that end a command, like Ctrl-C.
 *
 *   ends at once --main_defer_signals(true)--> is recorded --second signal--> ends at once
 *
 * Owner: main. Threads: one. Memory: none. Bound: none. */
#ifndef PROGRAMS_CLI_MAIN_H
#define PROGRAMS_CLI_MAIN_H

#include <stdbool.h>

/* true: a signal is only recorded, and the command polls main_signal(). */
void main_defer_signals(bool on);
/* Returns the number of the recorded signal; 0: none. */
int main_signal(void);

#endif

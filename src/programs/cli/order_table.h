/* programs/cli/order_table.h: the table of `stoker order`: cost and mixing of an order.
 *
 *   setup --order_report--> measures of this order and of others --> table or JSON
 *
 * Owner: run() of cmd_order.c. Threads: one. Memory: measures of each source or stage.
 * Bound: ORDER_SOURCES_MAX rows. */
#ifndef PROGRAMS_CLI_ORDER_TABLE_H
#define PROGRAMS_CLI_ORDER_TABLE_H

#include "programs/cli/order_args.h"

/* Prints a cell of 20 columns: the bytes of `blocks` blocks (their number if the size of a block is
 * unknown). */
void order_cell_bytes(const struct order_setup *setup, uint64_t blocks);
/* Prints a cell of 20 columns: a count, or "-" if it is unknown. */
void order_cell_count(uint64_t count, bool known);
/* Prints what the order costs and how well it mixes. Returns an exit status. */
int order_report(struct order_setup *setup);

#endif

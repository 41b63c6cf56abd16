/* programs/cli/order_labels.h: reports how an order mixes the labels of samples: of a class folder,
 * of the members cls of shards, or of a file.
 *
 *   setup, --labels --order_labels_measure--> struct stoker_mixing --> rows or JSON
 *
 * Owner: run() of a command. Threads: one. Memory: 8 bytes a label of a file.
 * Bound: ORDER_LABELS_MAX labels of a file. */
#ifndef PROGRAMS_CLI_ORDER_LABELS_H
#define PROGRAMS_CLI_ORDER_LABELS_H

#include "programs/cli/order_args.h"

#define ORDER_LABELS_MAX (UINT64_C(1) << 28)

/* Measures the order of the settings. Returns EXIT_FINE and fills *mixing_out, whose note is empty
 * if there are no labels, or reading them is slow and --labels was not given; or prints an error.
 */
int order_labels_measure(const struct args *args, struct stoker_dataset *dataset,
                         const struct stoker_dataset_info *info,
                         const struct stoker_order_options *options,
                         struct stoker_mixing *mixing_out);
/* Prints the rows of a table, or the member "mixing" of an object. Nothing without a note. */
void order_labels_print(const struct stoker_mixing *mixing);
void order_labels_print_json(const struct stoker_mixing *mixing);

#endif

/* Prints the order of an epoch: samples, 4 bytes each. Arguments: samples, samples a block, blocks
 * a window, groups, shuffle (1 block, 2 full), seed, epoch, version of the order. For
 * bench/peers/mixing.py, which bench/run.py mixing runs. */
#include <stdio.h>
#include <stdlib.h>
#include <stoker/stoker.h>

#define SLOTS 4096

int main(int count, char **arguments)
{
    uint64_t given[8] = {0}, skip = 0;
    struct stoker_order_options options = {.struct_size = sizeof options};
    struct stoker_error error = {0};
    struct stoker_order *order = NULL;
    static struct stoker_slot slots[SLOTS];
    uint32_t *samples;
    int filled;

    for (int i = 0; i < 8 && i + 1 < count; i++) {
        given[i] = strtoull(arguments[i + 1], NULL, 10);
    }
    options.sample_count = given[0];
    options.block_samples = given[1];
    options.window_blocks = (uint32_t)given[2];
    options.group_count = (uint32_t)given[3];
    options.shuffle = (uint32_t)given[4];
    options.seed = given[5];
    options.order_version = (uint32_t)given[7];
    options.batch_size = (uint32_t)given[0]; /* one step of all samples */
    samples = calloc(given[0], sizeof *samples);
    if (!samples || stoker_order_open(&order, &options, &error) < 0) {
        fprintf(stderr, "mixing: %s: %s\n", error.what, error.where);
        return 1;
    }
    while ((filled = stoker_order_slots(order, given[6], 0, STOKER_ALL_RANKS, skip, slots, SLOTS)) >
           0) {
        for (int i = 0; i < filled; i++) {
            samples[slots[i].position] = (uint32_t)slots[i].sample;
        }
        skip += (uint64_t)filled;
    }
    fwrite(samples, sizeof *samples, given[0], stdout);
    stoker_order_close(order);
    free(samples);
    return fflush(stdout) == 0 ? 0 : 1;
}

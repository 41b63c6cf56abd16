/* Prints the order of epochs: samples, 4 bytes each, epoch after epoch. Arguments: samples, samples
 * a block, blocks a window, groups, shuffle (1 block, 2 full), seed, epochs. For
 * bench/peers/shuffle_quality.py, which bench/run.py shuffle runs. */
#include <stdio.h>
#include <stdlib.h>
#include <stoker/stoker.h>

int main(int count, char **arguments)
{
    uint64_t given[7] = {0};

    for (int i = 0; i < 7 && i + 1 < count; i++) {
        given[i] = strtoull(arguments[i + 1], NULL, 10);
    }
    for (uint64_t epoch = 0; epoch < given[6]; epoch++) {
        for (uint64_t position = 0; position < given[0]; position++) {
            uint64_t sample;
            uint32_t word;

            if (stoker_order_at(given[0], given[1], (uint32_t)given[2], (uint32_t)given[3],
                                (uint32_t)given[4], given[5], epoch, position, &sample) < 0) {
                fprintf(stderr, "shuffle: no such order\n");
                return 1;
            }
            word = (uint32_t)sample;
            fwrite(&word, sizeof word, 1, stdout);
        }
    }
    return fflush(stdout) == 0 ? 0 : 1;
}

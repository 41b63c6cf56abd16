/* stoker/mixing.h: how well an order mixes the classes of a data set. */
#ifndef STOKER_MIXING_H
#define STOKER_MIXING_H

#include <stoker/dataset.h>
#include <stoker/order_analysis.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stoker_mixing_options {
    size_t struct_size;
    struct stoker_dataset *dataset;           /* borrowed; NULL: `labels` are set */
    const struct stoker_order_options *order; /* borrowed */
    const int64_t
        *labels;        /* borrowed: one for each sample of the order; NULL: stoker_dataset_label */
    uint64_t steps_max; /* to measure; default 200, of shards 40 */
};

/* Values of the order, and of a full permutation of the same samples (with the next seed if the
 * order is a full shuffle itself): see stoker_order_mixing. */
struct stoker_mixing {
    size_t struct_size;
    uint64_t steps, samples, classes;
    double batch_classes, full_batch_classes;
    uint64_t batch_classes_min, full_batch_classes_min;
    double batch_share_max, full_batch_share_max;
    uint64_t run_max, full_run_max, stretch_classes_min, full_stretch_classes_min;
    double chi_square, full_chi_square;
    /* The smallest window, of twice the blocks or four times ..., whose batches have at least 95 %
     * of the classes of a full permutation; 0: the order has them already, or no window has. */
    uint32_t better_window;
    double better_batch_classes;
    uint64_t better_bytes; /* of the blocks of that window; 0: unknown */
    char note[256];        /* "63 classes per batch; a full shuffle gives 144; window=1024 gives 140
                              for 8.6 GB" */
};
/* Measures how an order mixes classes, before a run. Reads labels of up to twice the measured
 * samples: of a folder from its index, of shards their members cls. Samples whose label is too long
 * count as one class; the note has their number. Returns 0 and fills
 * *mixing_out; STOKER_ERROR_MISSING if samples have no label; STOKER_ERROR_ARGUMENT if an option is
 * invalid. Any thread. */
STOKER_API int stoker_mixing_measure(const struct stoker_mixing_options *options,
                                     struct stoker_mixing *mixing_out, struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif

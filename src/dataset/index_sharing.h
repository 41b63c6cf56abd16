/* dataset/index_sharing.h: one process of a machine lists and scans a data set; others that open
 * the same one at the same time wait for its index.
 *
 *   begin --false--> list, scan --publish--> end        (first process, or sharing is off)
 *        `--true---> map the index at the path --> end  (a process that waited)
 *
 * Only data sets whose listing costs round trips are shared: on stores and network file systems.
 * Owner: the opening. Threads: one. Memory: none. Bound: single_flight_timeout_ms of the engine. */
#ifndef DATASET_INDEX_SHARING_H
#define DATASET_INDEX_SHARING_H

#include "dataset/index_locate.h"
#include "io/ipc/single_flight.h"

struct stk_index_sharing {
    struct stk_single_flight flight;
    char root[STK_PATH_BYTES_MAX]; /* before the paths of the shared index */
};

/* Returns true if another process was opening the data set, and its result is at flight.path. The
 * file is empty if it has no index to share. */
bool stk_index_sharing_begin(struct stk_index_sharing *sharing,
                             const struct stoker_dataset *dataset,
                             const struct stk_index_location *location);
/* Publishes the index if other processes wait for it. status: of making the index. */
void stk_index_sharing_publish(const struct stk_index_sharing *sharing,
                               const struct stoker_dataset *dataset, int status);
void stk_index_sharing_end(struct stk_index_sharing *sharing); /* twice is allowed */

#endif

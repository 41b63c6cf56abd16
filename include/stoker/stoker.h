/* stoker/stoker.h: all public headers of libstoker, in the order of the path of the data.
 * stoker/base.h describes the conventions of all functions and structures. */
#ifndef STOKER_STOKER_H
#define STOKER_STOKER_H

#include <stoker/base.h>  /* conventions, macros */
#include <stoker/error.h> /* status codes, error details */

#include <stoker/cache.h>    /* blocks of objects on the disks of this machine */
#include <stoker/engine.h>   /* threads, I/O queues, memory budget of a process */
#include <stoker/external.h> /* URLs that threads of the caller serve */

#include <stoker/dataset.h>    /* the samples of a folder or of tars */
#include <stoker/index.h>      /* build the index of a data set */
#include <stoker/jpeg_index.h> /* build the JPEG index of a data set */
#include <stoker/quarantine.h> /* damaged samples */

#include <stoker/mix.h>            /* an order of several sources */
#include <stoker/mixing.h>         /* how an order mixes the classes of a data set */
#include <stoker/order.h>          /* position -> sample, step, rank */
#include <stoker/order_analysis.h> /* measure, simulate, verify, compare orders */
#include <stoker/sampling.h>       /* select and draw samples */

#include <stoker/batch.h>  /* arrays of a batch */
#include <stoker/image.h>  /* transforms */
#include <stoker/loader.h> /* samples -> batches */
#include <stoker/state.h>  /* position of a loader, to resume from */
#include <stoker/tokens.h> /* files of tokens -> batches */

#include <stoker/clean.h>       /* files that stoker leaves on this machine */
#include <stoker/copy.h>        /* copy, synchronise, remove */
#include <stoker/credentials.h> /* credentials of a URL, URLs without credentials */
#include <stoker/files.h>       /* attributes, globs, listings, reads */
#include <stoker/filesystem.h>  /* the file system of a local path */
#include <stoker/location.h>    /* regions of bucket and machine */
#include <stoker/prewarm.h>     /* read files before training */

#include <stoker/checkpoint.h> /* save and load the state of a training */

#include <stoker/diff.h>         /* compare data sets */
#include <stoker/pack.h>         /* write a data set as shards */
#include <stoker/shard_writer.h> /* write samples of the caller as shards */
#include <stoker/verify.h>       /* verify and repair a data set */

#endif

/* stoker/loader.h: reads and decodes samples into batches, for one rank. */
#ifndef STOKER_LOADER_H
#define STOKER_LOADER_H

#include <stoker/batch.h>
#include <stoker/dataset.h>
#include <stoker/image.h>
#include <stoker/order.h>
#include <stoker/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stream of batches for one rank. One thread at a time uses a loader; any thread may close a
 * batch at any time, also after the loader was closed. */
struct stoker_loader;

enum stoker_field_kind {
    STOKER_FIELD_IMAGE = 1, /* decoded and transformed, in dtype and layout */
    STOKER_FIELD_LABEL,     /* int64: class number (folder) or the text of a member (tar) */
    STOKER_FIELD_BYTES,     /* the bytes of a member */
    STOKER_FIELD_KEY,       /* the key of the sample, UTF-8 bytes */
    STOKER_FIELD_FLOAT,     /* float64: the text of a member */
    STOKER_FIELD_SAMPLE,    /* int64: the sample id */
    STOKER_FIELD_TEXT,      /* BYTES: a member, or the value at `path`; checked to be UTF-8 */
    STOKER_FIELD_INT,       /* the text of a member, or a number at `path`. dtype: int64
                               (default) or uint64 */
    STOKER_FIELD_ARRAY,     /* numbers of an npy, npz, JSON or MessagePack member */
    STOKER_FIELD_MASK,  /* [H, W] of a grey or palette PNG, its stored values, or of ids that are
                           encoded as colours (rgb_ids). Gets the crops, resizes (by nearest) and
                           flips of the image that it follows */
    STOKER_FIELD_BOXES, /* ragged float32 [rows, 4]: x1, y1, x2, y2 in pixels of the transformed
                           image that they follow */
    STOKER_FIELD_BOX_LABELS, /* ragged int64: numbers of the boxes that remain */
    STOKER_FIELD_JSON,       /* BYTES: an unchanged member, checked to be entirely valid JSON */
    STOKER_FIELD_MSGPACK,    /* BYTES: the same for MessagePack */
};

/* Format of stored boxes. */
enum stoker_box_format { STOKER_XYXY = 1, STOKER_XYWH, STOKER_CXCYWH };

struct stoker_field_options {
    const char *name;
    uint32_t kind;                             /* enum stoker_field_kind */
    const char *extensions;                    /* "jpg;jpeg;png": the first that a sample has; NULL:
                                                  any image, "cls" for a label */
    const struct stoker_transform *transforms; /* borrowed */
    size_t transform_count;
    uint32_t dtype;  /* of an image; default uint8, float32 if normalised */
    uint32_t layout; /* of an image; default NCHW */
    uint8_t exif;    /* 1: apply the EXIF orientation */
    /* TEXT, INT, FLOAT, ARRAY, BOXES: a value inside of the member. JSON and MessagePack: names and
     * indexes separated by dots, `*` for each item of a list ("objects.*.box"); npz: the name of an
     * array. */
    const char *path;
    /* ARRAY, with dtype (default float32): dimensions of the array of a sample, at most 3, -1 for
     * one that varies. 0 dimensions: one that varies. All fixed: a plain array; else ragged. */
    uint32_t dimension_count;
    int64_t shape[3];
    const char *follows; /* MASK, BOXES: name of the image; NULL: the first. MASK: dtype uint8
                            (default) or int64 */
    const char *labels;  /* BOX_LABELS: path of the labels; `path` is that of the boxes */
    uint32_t box_format; /* enum stoker_box_format; default xyxy */
    uint8_t normalised;  /* 1: stored boxes are in fractions of the image's width and height */
    uint8_t keep_empty; /* 1: keep boxes that are outside of the image after the transforms, with no
                           area */
    uint8_t planar;     /* IMAGE, 1: a baseline JPEG may be resized before chroma upsampling and
                           colour conversion: faster, and on average 0.4 of 255 levels off the
                           pixels of libjpeg-turbo and torchvision, which 0 returns. The bytes are
                           reproducible. A run must resume with the same setting */
    uint8_t rgb_ids; /* MASK, 1: a value is R + 256 G + 65536 B of the PNG's colours, as in COCO's
                        panoptic masks: dtype int64 */
    uint8_t has_default; /* 1: a sample without the member, or without a value at the path, has
                            the default. Not for images, masks, boxes and ragged arrays */
    const void *default_value; /* borrowed by open: an int64 or uint64 (INT), a double (FLOAT), one
                                  item of the dtype (ARRAY), or bytes (TEXT without path, BYTES) */
    size_t default_bytes;      /* of it */
    uint8_t label_from_path;   /* LABEL, 1: of tars, too, the label is the number of the folder of
                                  the sample's key: see stoker_dataset_path_class */
};

/* What makes an image damaged, beside data that cannot be decoded. A crop is decoded up to its last
 * row only, so damage below it is not found by DECODED and TOLERANT. */
enum stoker_image_check {
    STOKER_CHECK_DECODED = 1, /* the decoder warns about damage in the part that it decodes */
    STOKER_CHECK_WHOLE,   /* each image is decoded to its end, and the decoder warns about any of
                             it, or a checksum of a PNG is wrong: as verify with deep */
    STOKER_CHECK_TOLERANT /* nothing: warnings are ignored, as PIL ignores them */
};

struct stoker_loader_options {
    size_t struct_size;
    const struct stoker_field_options *fields; /* borrowed */
    size_t field_count;
    uint32_t batch_size;
    uint32_t shuffle;          /* enum stoker_shuffle; default full where random reads cost nothing
                                  (files of a folder, shards on local disks), else block with the
                                  largest window that the memory budget allows; block if a window
                                  or groups are set. See stoker_dataset_info.default_shuffle */
    uint32_t tail;             /* enum stoker_tail; default drop */
    uint32_t window_blocks;    /* default 64, or as the default of shuffle says */
    uint32_t group_count;      /* home groups: each node reads the same blocks in every epoch if
                                  group_count divides the samples of a step and is a multiple of the
                                  nodes, or much larger; default 1 */
    uint32_t rank, world_size; /* default 0 of 1 */
    uint64_t seed;
    uint32_t on_error;             /* enum stoker_on_error; default raise */
    uint32_t batches_ahead;        /* prefetched batches; default: tuned */
    uint64_t pixels_max;           /* of an image; default 178,956,970 */
    uint64_t decode_bytes_max;     /* memory of the decoder of one image, or of one
                                      decompressed and parsed member (npz, JSON ...);
                                      default 1 GiB, within the engine's budget */
    uint32_t no_direct_io;         /* 1: never read ahead by direct I/O */
    uint64_t bad_samples_max;      /* damaged samples; 0: no limit */
    double bad_share_max;          /* of the delivered samples, from the 1,000th on; 0: no
                                      limit */
    uint32_t bad_list_max;         /* length of the quarantine list; default 10,000 */
    uint32_t io_retries;           /* of a read that fails with EIO, ESTALE and the like;
                                      default 3; STOKER_NO_RETRIES */
    uint32_t io_retry_wait_ms;     /* before the first retry; doubles up to 10 s; default
                                      100 */
    const char *quarantine;        /* borrowed: a file that gets a line of JSON for each
                                      damaged sample; with several ranks
                                      QUARANTINE.rankN; NULL: none */
    uint32_t worker, worker_count; /* deliver only batches worker, worker + worker_count,
                                      ... of this rank; default 0 of 1 */
    const struct stoker_loader *continues_from; /* borrowed by open: the loader that this one
                                                   continues, on the data set before it was
                                                   refreshed or on another part of it. Its damaged
                                                   samples stay listed; they and its delivered
                                                   samples count for the limits; NULL: none */
    const struct stoker_mix_options *mix; /* borrowed; NULL: one order of the whole data set. A mix
                                             cannot have sequential shards */
    uint64_t block_samples;               /* of the order; default: the data set's */
    const struct stoker_sampling_options
        *sampling;          /* borrowed; NULL: all samples, once an epoch. Not
                               together with a mix or sequential shards */
    uint32_t image_check;   /* enum stoker_image_check; default decoded */
    uint32_t order_version; /* 1 or 2; default: the newest, STOKER_ORDER_VERSION */
};

/* Opens a loader and starts to prefetch. Keeps the data set and the engine alive. Returns 0 and
 * sets *loader_out; STOKER_ERROR_ARGUMENT if an option is invalid; STOKER_ERROR_EMPTY if tail drop
 * leaves no batch in an epoch. */
STOKER_API int stoker_loader_open(struct stoker_loader **loader_out, struct stoker_dataset *dataset,
                                  const struct stoker_loader_options *options,
                                  struct stoker_error *error);
/* Takes ownership; NULL is allowed. Returns within 0.2 s. Batches that the caller holds stay
 * valid. */
STOKER_API void stoker_loader_close(struct stoker_loader *loader);

/* Moves to the first batch of an epoch. Returns 0 on success. */
STOKER_API int stoker_loader_set_epoch(struct stoker_loader *loader, uint64_t epoch,
                                       struct stoker_error *error);

/* Waits for the next batch. Returns
 *   1                     and sets *batch_out, which the caller owns
 *   0                     at the end of the epoch (*batch_out is NULL; the next call starts the
 * next epoch) STOKER_ERROR_AGAIN    after timeout_ms: call again (lets the caller handle signals)
 *   STOKER_ERROR_BUDGET   if the batches of the caller use the entire memory budget: close some and
 *                         call again
 *   STOKER_ERROR_LIMIT    if bad_samples_max or bad_share_max is exceeded
 *   another error         of a sample
 * After an error the loader stays before that batch. */
STOKER_API int stoker_loader_next(struct stoker_loader *loader, uint32_t timeout_ms,
                                  struct stoker_batch **batch_out, struct stoker_error *error);

/* Returns the number of batches of an epoch for this rank (and worker). */
STOKER_API uint64_t stoker_loader_batches(const struct stoker_loader *loader, uint64_t epoch);
/* Returns the number of samples of an epoch over all ranks: those of the data set or the mix. */
STOKER_API uint64_t stoker_loader_samples(const struct stoker_loader *loader);

/* The state after the last delivered batch. Computes the fingerprint of the batches since the last
 * call (of stats, too): 15 to 130 ns a sample of all ranks, on all threads. Returns 0 and fills
 * *state_out; -ENOMEM if memory is exhausted; STOKER_ERROR_CORRUPT if the table of a sampler is
 * damaged. */
STOKER_API int stoker_loader_state(const struct stoker_loader *loader,
                                   struct stoker_state *state_out);
/* The state at an earlier position of the stream, a few steps ago: for callers that take batches
 * ahead of the one in use. Returns 0 and fills *state_out; STOKER_ERROR_ARGUMENT if the stream was
 * not at this position or was more than 4,096 steps ago. */
STOKER_API int stoker_loader_state_at(const struct stoker_loader *loader, uint64_t epoch,
                                      uint64_t position, struct stoker_state *state_out);
/* Epoch and position of the state, without the cost of the fingerprint. Returns 0. */
STOKER_API int stoker_loader_position(const struct stoker_loader *loader, uint64_t *epoch_out,
                                      uint64_t *position_out);
/* Moves to the position of a state. Settings of the order that the options of open left out
 * (shuffle, window_blocks, block_samples, order_version) become those of the state, so that a run
 * continues in its order if the data moved to another kind of storage, or after an update of the
 * library. Returns 0 on success; STOKER_ERROR_STATE, with the difference in *error, if the state
 * belongs to other data or settings. */
STOKER_API int stoker_loader_set_state(struct stoker_loader *loader,
                                       const struct stoker_state *state,
                                       struct stoker_error *error);

/* The first position of the run where the weights of a mix may change without affecting delivered
 * samples: the end of the current frame, or of the frame of position `least` - 1. Open a loader
 * with that change, and set it to the current state with the `mix` of the new loader's own state.
 * Returns 0 and sets *position_out; STOKER_ERROR_ARGUMENT if there is no mix. */
STOKER_API int stoker_loader_mix_change_position(const struct stoker_loader *loader, uint64_t least,
                                                 uint64_t *position_out);

/* The settings of the loader's order, for stoker_order_open. With a mix, options_out->mix must
 * point to the mix that the loader was opened with, and is not changed (else
 * STOKER_ERROR_ARGUMENT). Pointers of a sampling are valid until the loader is closed. Returns 0 on
 * success. */
STOKER_API int stoker_loader_order(const struct stoker_loader *loader,
                                   struct stoker_order_options *options_out);

#define STOKER_JPEG_REASONS 16
#define STOKER_PNG_READERS 2

struct stoker_stats {
    size_t struct_size;
    uint64_t batches, samples, bytes; /* delivered; bytes of members that were read */
    uint64_t substituted;             /* samples replaced under on_error = skip */
    uint64_t run_ns;                  /* since the first next() */
    uint64_t wait_ns;                 /* time of the caller in next(), part of run_ns */
    uint64_t first_batch_ns;          /* since the loader was opened */
    uint64_t read_ns, decode_ns;      /* thread time */
    uint64_t warm_reads, cold_reads, io_requests;
    uint64_t memory_bytes_peak;      /* of the engine */
    uint64_t lock_wait_ns;           /* thread time */
    uint32_t threads, batches_ahead; /* current values */
    uint64_t idle_ns;                /* thread time without work: ahead_ns and storage_wait_ns */
    uint64_t retries;                /* of reads */
    uint64_t bad_samples; /* damaged samples of the delivered batches; with continues_from:
                             of the run */
    uint64_t fingerprint; /* as in the state */
    /* JPEGs that the engine decoded since the loader was opened: [0] by stoker's own decoder, the
     * others by libjpeg-turbo, with the same pixels, by stoker_jpeg_reason. */
    uint64_t jpegs[STOKER_JPEG_REASONS];
    uint64_t jpegs_indexed; /* part of jpegs[0]: decoded from an entry point of the JPEG index */
    uint64_t jpegs_planar;  /* part of jpegs[0]: resized before the colour conversion */
    /* PNGs: [0] by stoker's own reader, [1] by libpng: interlaced, damaged or unusual ones. */
    uint64_t pngs[STOKER_PNG_READERS];
    uint64_t io_bytes; /* of io_requests, including gaps between samples of a request */
    uint64_t ahead_ns; /* thread time without work, as enough batches are ahead of the consumer: the
                          caller is the bottleneck */
    uint64_t storage_wait_ns; /* thread time without work, as bytes are awaited: the disk, the
                                 network or the store is the bottleneck */
};
/* Returns why stoker's own decoder leaves a JPEG to libjpeg-turbo: "progressive", "damaged data",
 * ... Valid forever; NULL for 0 and past the last reason. Any thread. */
STOKER_API const char *stoker_jpeg_reason(uint32_t i);
/* Returns 0 and fills *stats_out; STOKER_ERROR_ARGUMENT if struct_size is wrong. */
STOKER_API int stoker_loader_stats(const struct stoker_loader *loader,
                                   struct stoker_stats *stats_out);

/* Quarantine: each damaged sample of the delivered batches (and of the error of next) once, in the
 * order of delivery. Returns the length of the list, at most bad_list_max. */
STOKER_API uint64_t stoker_loader_quarantine_count(const struct stoker_loader *loader);
/* Returns 0 and fills *entry_out, whose texts are valid until the loader is closed;
 * STOKER_ERROR_ARGUMENT if index is past the end. */
STOKER_API int stoker_loader_quarantine(const struct stoker_loader *loader, uint64_t index,
                                        struct stoker_quarantine_entry *entry_out);

#ifdef __cplusplus
}
#endif
#endif

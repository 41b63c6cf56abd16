/* stoker.h: training data, from files to batches, in one process.
 *
 * The one public header of libstoker. Sections: error, image, desk, engine, dataset, index, order,
 * sampling, loader, batch, tokens, pack, verify, diff, files.
 *
 * Conventions
 *   Return   int: 0 or a count on success, negative on failure: -errno where errno says it,
 *            else one of STOKER_ERROR_*. `struct stoker_error *` may be NULL everywhere.
 *   Options  struct_size first (sizeof the struct); 0 in a field means its default; new fields
 *            are only added at the end.
 *   Words    owns (frees it), borrows (during the call), lends (until a path_args event), takes
 *            (yours no more, even on failure), gives (now yours).
 *   Threads  one object, one thread at a time, unless its section says otherwise.
 *   The library prints nothing, never exits, and has no callbacks.
 */
#ifndef STOKER_STOKER_H
#define STOKER_STOKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STOKER_API __attribute__((visibility("default")))
#define STOKER_VERSION "0.1.0"

/* ---- error ---------------------------------------------------------------------------- */

/* Number, name, sentence. */
#define STOKER_ERRORS(X)                                                                           \
    X(-5001, CORRUPT, "the data is damaged")                                                       \
    X(-5002, TRUNCATED, "the data ends too early")                                                 \
    X(-5003, FORMAT, "the data is not of the expected format")                                     \
    X(-5004, UNSUPPORTED, "the data uses a feature that stoker does not read")                     \
    X(-5005, LIMIT, "a limit named in the options was passed")                                     \
    X(-5006, MISSING, "a field or a label is missing")                                             \
    X(-5007, SCATTERED, "members of one sample do not lie together")                               \
    X(-5008, ARGUMENT, "an argument or option is not usable")                                      \
    X(-5009, STATE, "the state belongs to another data set, setting or order version")             \
    X(-5010, BUDGET, "the memory budget is used up")                                               \
    X(-5011, TIMEOUT, "a deadline passed")                                                         \
    X(-5012, FORKED, "the object was made in another process")                                     \
    X(-5013, CLOSED, "the object is closed")                                                       \
    X(-5014, EMPTY, "there is nothing to read")                                                    \
    X(-5015, AGAIN, "nothing is ready yet")                                                        \
    X(-5016, CHANGED, "the data changed while it was in use")

enum stoker_status {
    STOKER_OK = 0,
#define X(number, name, sentence) STOKER_ERROR_##name = (number),
    STOKER_ERRORS(X)
#undef X
};

#define STOKER_NO_OFFSET UINT64_MAX

/* What failed, where, and what to do. Owned by the caller; a zeroed one is empty. */
struct stoker_error {
    int status;       /* the value that was returned */
    uint64_t offset;  /* byte offset in `shard`; STOKER_NO_OFFSET if it has no meaning */
    char what[192];   /* "cannot read member header" */
    char where[768];  /* "'train-0042.tar' offset 1048576 key 'a/17'" */
    char advice[256]; /* the next step */
    char shard[512];  /* path or URL; empty if it has no meaning */
    char key[256];    /* sample key; empty if it has no meaning */
};

/* Lends for ever: "STOKER_ERROR_CORRUPT", or errno's name; and a sentence. Any thread. */
STOKER_API const char *stoker_status_name(int status);
STOKER_API const char *stoker_status_text(int status);
STOKER_API const char *stoker_version(void);

/* ---- image ---------------------------------------------------------------------------- */

/* Transforms carry the names, defaults and meaning of torchvision.transforms.v2. */
enum stoker_transform_kind {
    STOKER_RANDOM_RESIZED_CROP = 1, /* height, width, scale[2], ratio[2], filter */
    STOKER_RESIZE,                  /* height, width (0: short side = height), filter, max_size */
    STOKER_CENTER_CROP,             /* height, width */
    STOKER_RANDOM_CROP,             /* height, width */
    STOKER_RANDOM_HORIZONTAL_FLIP,  /* probability */
    STOKER_RANDOM_VERTICAL_FLIP,    /* probability */
    STOKER_COLOR_JITTER,            /* brightness, contrast, saturation, hue: [low, high] each */
    STOKER_NORMALIZE,               /* mean[3], std[3]; of values in [0, 1] */
};

enum stoker_filter { STOKER_BILINEAR = 1, STOKER_BICUBIC, STOKER_NEAREST };

/* No field has a hidden default here: the caller (as python/stoker does) writes all that the
 * kind names. */
struct stoker_transform {
    uint32_t kind; /* enum stoker_transform_kind */
    uint32_t height, width;
    uint32_t filter; /* enum stoker_filter */
    uint32_t max_size;
    double scale[2], ratio[2];
    double probability;
    double brightness[2], contrast[2], saturation[2]; /* factors; {1, 1} is off */
    double hue[2];                                    /* shift in turns; {0, 0} is off */
    float mean[3], std[3];
};

enum stoker_dtype {
    STOKER_UINT8 = 1,
    STOKER_FLOAT32,
    STOKER_FLOAT16,
    STOKER_BFLOAT16,
    STOKER_INT64,
    STOKER_FLOAT64,
    STOKER_BYTES, /* variable length: values and offsets */
    STOKER_BOOL,  /* a byte, 0 or 1 */
    STOKER_INT8,
    STOKER_INT16,
    STOKER_UINT16,
    STOKER_INT32,
    STOKER_UINT32,
    STOKER_UINT64,
};

enum stoker_layout { STOKER_NCHW = 1, STOKER_NHWC };

/* ---- desk ----------------------------------------------------------------------------- */

/* Errands that threads of the caller run for engines: what lies behind URLs that the library has no
 * store for (sftp://...). It asks for size and kind of a URL, for the names below it, and for
 * bytes; there are no callbacks. Engines that were given a desk hold it: close it when it is of no
 * more use. Of URLs whose desk nobody ever asked for errands, nothing is read. Any thread. */
struct stoker_external_fs;

enum stoker_external_kind {
    STOKER_EXTERNAL_STAT = 1, /* answer: folder, or bytes, mtime_ns, version */
    STOKER_EXTERNAL_LIST,     /* answer: names */
    STOKER_EXTERNAL_READ,     /* answer: the buffer filled, bytes: how many, fewer at the end */
};
struct stoker_external_request {
    size_t struct_size;
    uint64_t number; /* for its answer */
    uint32_t kind;   /* enum stoker_external_kind */
    const char *url; /* lent until it is answered */
    uint64_t offset; /* READ */
    uint64_t bytes;  /* READ: wanted, at most 4 MiB */
    void *buffer;    /* READ: lent until it is answered; nobody reads it before */
};
struct stoker_external_reply {
    size_t struct_size;
    int status; /* 0; or why not: -errno or one of STOKER_ERROR_* */
    uint64_t bytes;
    uint64_t mtime_ns;         /* since 1970; 0: not known */
    uint64_t version;          /* differs when the file does (a hash of an ETag); 0: not known */
    uint8_t is_folder;         /* 1: a folder */
    const char *names;         /* borrowed: each 'f' (a file), 'd' (a folder), 'F', 'D' (a link to
                                  one) or '-', its name, and a NUL; what has a '/' is left out */
    uint64_t name_count;       /* of them */
    const char *what, *advice; /* borrowed, of a failure; NULL: not known */
};

STOKER_API int stoker_external_fs_open(struct stoker_external_fs **desk_out,
                                       struct stoker_error *error);
/* Takes. What waits fails with STOKER_ERROR_CLOSED; so does next, in all threads. NULL is fine. */
STOKER_API void stoker_external_fs_close(struct stoker_external_fs *desk);
/* 1: fills *errand_out, to be answered. 0: there was none within timeout_ms. */
STOKER_API int stoker_external_fs_next(struct stoker_external_fs *desk, uint32_t timeout_ms,
                                       struct stoker_external_request *errand_out,
                                       struct stoker_error *error);
/* Ends an errand; of one that nobody waits for any more the answer is dropped.
 * STOKER_ERROR_ARGUMENT: struct_size, status, or no such errand. */
STOKER_API int stoker_external_fs_reply(struct stoker_external_fs *desk, uint64_t number,
                                        const struct stoker_external_reply *answer);

/* ---- engine --------------------------------------------------------------------------- */

/* Threads, rings and memory of a process, shared by its loaders.
 * Threads: any. After fork the child's calls answer STOKER_ERROR_FORKED. */
struct stoker_engine;

enum stoker_io_backend { STOKER_IO_AUTO = 0, STOKER_IO_URING, STOKER_IO_THREADS };
enum stoker_direct { STOKER_DIRECT_AUTO = 0, STOKER_DIRECT_NEVER, STOKER_DIRECT_ALWAYS };
enum stoker_simd { STOKER_SIMD_AUTO = 0, STOKER_SIMD_NONE, STOKER_SIMD_AVX2 };

struct stoker_engine_options {
    size_t struct_size;
    uint64_t memory_bytes_max;  /* never passed; default: half of what the cgroup grants */
    uint32_t threads;           /* decode threads; default: the cores that the cgroup grants
                                   less cores_reserved; those without work sleep */
    uint32_t cores_reserved;    /* left for the training loop; default 0 */
    uint32_t io_backend;        /* enum stoker_io_backend */
    uint32_t direct;            /* enum stoker_direct: O_DIRECT for cold reads */
    uint32_t io_depth;          /* reads in flight; default 128, and 256 from stores */
    uint32_t io_bytes_max;      /* one read after coalescing; default 4 MiB, on network file systems
                                   and FUSE what suits the mount (struct stoker_filesystem_info) */
    uint32_t io_gap_bytes;      /* neighbours nearer than this are one read; default 64 KiB, there
                                   up to 1 MiB, but no more is read along than is wanted */
    uint32_t read_timeout_ms;   /* a read is given up after it; default 30,000 */
    uint32_t simd;              /* enum stoker_simd: for tests and measurements */
    uint32_t open_files_max;    /* kept open at once; default 256 */
    uint8_t sandbox;            /* 1: decode pictures, and parse JSON, MessagePack and npz, in
                                   helper processes that can do nothing else */
    uint32_t decode_timeout_ms; /* CPU time for one of them in the sandbox; default 10,000 */
    const char *sandbox_helper; /* borrowed: path of stoker-decode; default: beside this library */
    uint32_t connections_max;   /* to stores and web servers; it begins with 256, or 128 beside
                                   other engines of this user, and uses as many as bring more;
                                   default 256, at most 1,024 */
    uint32_t node_connections_max; /* of all engines of this user on this machine together; the
                                      least of those that run holds; default 256, at most 1,024 */
    uint8_t no_process_sharing;    /* 1: shares no connections and no rates with other processes */
    uint8_t no_hedging;            /* 1: no read is asked for twice */
    uint32_t hedge_percent_max;    /* of all requests, reads that are late and asked for once more;
                                      default 3, at most 10 */
    struct stoker_external_fs
        *external_fs;    /* borrowed: who reads URLs that the library has no store for */
    uint8_t check_etags; /* 1: of objects that come whole, and of which the store tells no
                            checksum, an ETag that is an MD5 is checked: 1.5 to 2 s of CPU
                            for each GB. Those of SSE-KMS, SSE-C, S3 Express and of
                            objects written by parts are none */
    uint32_t network_fs_threads_max;   /* that open, list and read by themselves on network file
                                   systems and FUSE at once; default 8, at most 256 */
    uint32_t single_flight_timeout_ms; /* an opening waits for another process of this user that
                                 lists the same path; then it lists by itself; default 600,000 */
};

/* Gives *engine_out. */
STOKER_API int stoker_engine_open(struct stoker_engine **engine_out,
                                  const struct stoker_engine_options *options,
                                  struct stoker_error *error);
/* Takes engine. Threads end when the last loader is closed. NULL is fine. */
STOKER_API void stoker_engine_close(struct stoker_engine *engine);

struct stoker_engine_info {
    size_t struct_size;
    uint32_t threads;          /* now running */
    uint32_t cores;            /* granted by affinity and cgroup */
    uint64_t memory_bytes_max; /* the budget */
    uint64_t memory_bytes;     /* in use now */
    uint64_t memory_bytes_peak;
    uint64_t leaked_bytes;  /* buffers of reads that never came back */
    const char *io_backend; /* "io_uring" or "threads"; lent for ever */
    const char *io_reason;  /* why; lent until engine close */
    const char *simd;       /* "avx2", "sse2", "neon" or "none"; lent for ever */
    const char *sandbox;    /* "off", or what the kernel enforces; lent until engine close */
};
STOKER_API int stoker_engine_info(struct stoker_engine *engine, struct stoker_engine_info *info);

/* What the engine asked of stores since it was opened; each array by enum stoker_store. */
enum stoker_store {
    STOKER_STORE_HTTP = 0, /* http:// and https:// */
    STOKER_STORE_S3,
    STOKER_STORE_GS,
    STOKER_STORE_AZ,
    STOKER_STORE_HF,
    STOKER_STORES,
};
struct stoker_store_stats {
    size_t struct_size;
    uint64_t requests[STOKER_STORES]; /* sent; those that were sent again count again */
    /* Of them: pages of listings; what writes (objects and their parts, copies, beginning and end
     * of an upload); what removes (objects, many at once, uploads). The others read. */
    uint64_t lists[STOKER_STORES], puts[STOKER_STORES], deletes[STOKER_STORES];
    uint64_t bytes[STOKER_STORES]; /* of answers' bodies that arrived */
    /* Requests sent again: after 429 and 503; after resets, stalls, other 5xx and wrong answers;
     * at once, since credentials, region or clock were put right. */
    uint64_t retries_throttled, retries_transient, retries_other;
    /* Of `bytes`: proven by a checksum that the server told, of the answer's body, or of the whole
     * object when all of its ranges had come. The others had none, or not all of an object came. */
    uint64_t verified_bytes[STOKER_STORES];
    uint64_t checksum_failures; /* bodies that were not as the server's checksum says */
    /* Good manners. */
    uint64_t throttles;          /* answers "too much": 429, 503, SlowDown and the like */
    uint64_t hedges, hedges_won; /* reads asked for once more since their first byte was late; of
                                    them those whose second answer came first */
    uint64_t connection_waits;   /* requests that waited: no connection of the node was left */
    uint64_t throttle_waits;     /* the rate of their prefix let them wait */
    double rate_max; /* requests a second: the least of all limited prefixes; 0: no limit now */
    uint32_t connections, connections_peak; /* of this engine: open, in use or not */
    uint32_t connections_max; /* as many as it uses at once, tuned by what they bring */
    uint32_t node_connections, node_connections_max, node_engines; /* of all that share */
    const char *sharing_note; /* "": shared with this user's other processes; else why not; lent
                               until engine close; NULL: nothing was asked of stores yet */
};
/* Any thread. STOKER_ERROR_ARGUMENT: struct_size. */
STOKER_API int stoker_engine_store_stats(struct stoker_engine *engine,
                                         struct stoker_store_stats *ledger);

/* ---- dataset -------------------------------------------------------------------------- */

/* The samples of a folder or of tars, found by reading headers only. Const after open:
 * any thread. */
struct stoker_dataset;

enum stoker_index_use {
    STOKER_INDEX_AUTO = 0, /* what of an index is fresh is used, the rest is scanned */
    STOKER_INDEX_NEVER,    /* all headers are read */
    STOKER_INDEX_REQUIRE,  /* nothing is scanned: STOKER_ERROR_CHANGED names what differs */
};

/* Indexes that other tools left beside shards: DALI's wds2idx, Energon's .tar.idx. */
enum stoker_foreign_index_use {
    STOKER_FOREIGN_INDEX_AUTO = 0, /* used where they seem true; DALI's proved when a sample is
                                read, Energon's at open */
    STOKER_FOREIGN_INDEX_NEVER,
};

struct stoker_dataset_options {
    size_t struct_size;
    const char *const *urls; /* borrowed: paths, directories, globs, {000..099} braces, JSONs of
                                wids */
    size_t url_count;
    uint32_t key_bytes_max;           /* default 4,096 */
    uint32_t header_bytes_max;        /* GNU long name or PAX record block; default 1 MiB */
    uint32_t member_gap_max;          /* members between two parts of a sample; default 0 */
    uint64_t decompressed_bytes_max;  /* of one compressed shard; default 1 TiB */
    uint32_t decompression_ratio_max; /* unpacked to packed bytes; default 1,100 */
    uint32_t block_bytes;             /* aim for a block of the order; default 8 MiB, or
                                         what the index says */
    uint32_t index;                   /* enum stoker_index_use; default auto */
    const char *index_path;           /* borrowed; default: stoker.index beside the data,
                                         then one in the cache */
    uint32_t foreign_index;           /* enum stoker_foreign_index_use; default auto */
    uint64_t segment_cache_bytes;     /* of packed shards with access points: unpacked pieces
                                       that are kept, within the memory budget; default
                                       512 MiB, at most a quarter of the budget */
    uint32_t on_error; /* enum stoker_on_error. Raise (default): a tar whose headers are
                          damaged, or that ends early, cannot be opened. Skip: its
                          samples that are surely whole are taken, and the rest listed:
                          for pack, which writes what is left. What is damaged must be
                          the same for all who share an order */
};

/* Gives *dataset_out. Lists directories and reads headers in parallel on the engine, as far as no
 * index tells them. */
STOKER_API int stoker_dataset_open(struct stoker_dataset **dataset_out,
                                   struct stoker_engine *engine,
                                   const struct stoker_dataset_options *options,
                                   struct stoker_error *error);
/* Under on_error = skip: places of damage in tars that were read, and samples that are not in the
 * data set for it, in the order of the tars. `sample` is STOKER_NO_SAMPLE, `key` empty where none
 * is known. Damage in a member's own bytes is not looked for. */
STOKER_API uint64_t stoker_dataset_quarantine_count(const struct stoker_dataset *dataset);
struct stoker_quarantine_entry;
/* Texts are lent until close. STOKER_ERROR_ARGUMENT past the end. */
STOKER_API int stoker_dataset_quarantine(const struct stoker_dataset *dataset, uint64_t index,
                                         struct stoker_quarantine_entry *entry_out);
/* Takes dataset; loaders opened on it keep it alive. */
STOKER_API void stoker_dataset_close(struct stoker_dataset *dataset);

struct stoker_dataset_info {
    size_t struct_size;
    const char *kind; /* "imagefolder", "webdataset", or of both "joined"; lent for ever */
    uint64_t sample_count, member_count, shard_count, class_count;
    uint64_t bytes;           /* of all members; 0 for a folder (its files are not asked) */
    uint64_t block_samples;   /* samples a block of the order */
    uint8_t sequential;       /* 1: compressed shards without access points, read front to back in
                                 shard order */
    uint8_t identity[32];     /* hash of names, sizes and members */
    const char *index_path;   /* of the index that was used; NULL: none. Lent until close */
    const char *index_note;   /* why it was not, or not wholly, used; or empty. Lent likewise */
    uint64_t shards_indexed;  /* taken from the index, not scanned */
    uint64_t shards_foreign;  /* taken from indexes of other tools */
    const char *foreign_note; /* why one was not, or what it has otherwise; or empty. Lent too */
    const char *jpeg_index_note; /* why the marks of its JPEGs are not used; or empty. Lent too */
    uint8_t jpeg_indexed;        /* 1: its JPEGs have marks (struct stoker_jpeg_indexer) */
    uint32_t jpeg_index_mcus;    /* of them: as in stoker_jpeg_indexer_options */
};
STOKER_API int stoker_dataset_info(const struct stoker_dataset *dataset,
                                   struct stoker_dataset_info *info);
/* Where the samples of a url and those before it end. STOKER_ERROR_ARGUMENT: there are not so many
 * urls; UNSUPPORTED: the data set was not listed (stoker_dataset_as_of). */
STOKER_API int stoker_dataset_url_end(const struct stoker_dataset *dataset, size_t url,
                                      uint64_t *samples_out);
/* Where the samples of shards first .. first + count - 1 end, as a two-level order wants them.
 * STOKER_ERROR_ARGUMENT past the last shard; UNSUPPORTED: a folder has none. */
STOKER_API int stoker_dataset_shard_ends(const struct stoker_dataset *dataset, uint64_t first,
                                         uint64_t count, uint64_t *ends_out);
/* Lends until dataset close. -STOKER_ERROR_ARGUMENT past the end. */
STOKER_API int stoker_dataset_class(const struct stoker_dataset *dataset, uint64_t class_index,
                                    const char **name_out);

struct stoker_member_info {
    const char *shard;     /* lent until dataset close */
    const char *extension; /* lower case, without the first dot; lent likewise */
    uint64_t offset;       /* of the data in the (unpacked) shard */
    uint64_t bytes;        /* UINT64_MAX: the whole file, size not asked */
};
/* Key of a sample into key (at most key_capacity bytes with its NUL) and up to *member_count
 * members; *member_count becomes how many there are. */
STOKER_API int stoker_dataset_sample(const struct stoker_dataset *dataset, uint64_t sample,
                                     char *key, size_t key_capacity,
                                     struct stoker_member_info *members, size_t *member_count,
                                     struct stoker_error *error);
/* Reads a member whole into buffer (capacity bytes). *bytes_out: its size, also when it does
 * not fit (STOKER_ERROR_LIMIT). */
STOKER_API int stoker_dataset_read(struct stoker_dataset *dataset, uint64_t sample,
                                   const char *extension, void *buffer, size_t capacity,
                                   size_t *bytes_out, struct stoker_error *error);

/* Shards that were appended since the data set was opened (tars that are listed behind all that it
 * has), as another data set, for the loaders of the next epoch: what is known is not read again,
 * and blocks of the order keep their size. The data set itself stays as it is. shard_count: that
 * many in all, so that all ranks take the same; 0: as many as there are.
 * 1: gives *newer_out; 0: there are none. STOKER_ERROR_CHANGED: a shard that it has was changed or
 * is gone, another stands before it, fewer than shard_count are there, or with index = require the
 * index does not tell of them. */
STOKER_API int stoker_dataset_refresh(const struct stoker_dataset *dataset, uint64_t shard_count,
                                      struct stoker_dataset **newer_out,
                                      struct stoker_error *error);
/* The data set as it was when the state was taken: its first shards, with the state's blocks. So a
 * run goes on in its epoch though shards were appended. 1: gives *part_out; 0: it is the data
 * set itself; STOKER_ERROR_STATE: neither. */
struct stoker_state;
STOKER_API int stoker_dataset_as_of(const struct stoker_dataset *dataset,
                                    const struct stoker_state *state,
                                    struct stoker_dataset **part_out, struct stoker_error *error);
/* Several data sets of one engine, class folders and tars alike, as one, for a mix: url i is
 * parts[i] (stoker_dataset_url_end), which may be closed. Its index is in memory. Its classes are
 * those of the first part that has any: whoever asks for labels looks whether the others have the
 * same. STOKER_ERROR_ARGUMENT: there is none, or they have several engines. */
STOKER_API int stoker_dataset_join(struct stoker_dataset *const *parts, size_t part_count,
                                   struct stoker_dataset **joined_out, struct stoker_error *error);

/* ---- index ---------------------------------------------------------------------------- */

/* Makes the index file of a data set, on a thread of its own and the engine's: entries of shards
 * that did not change are kept, new shards are read; what a killed run had finished is kept, too.
 * The file is written beside and renamed when it is whole. Two at once for one file: the second is
 * refused (-EBUSY), and told of the first. */
struct stoker_indexer;

struct stoker_indexer_options {
    size_t struct_size;
    const char *out;   /* borrowed; default: stoker.index in the folder above all shards; in the
                          cache where that cannot be written, or tells of other shards */
    uint8_t checksums; /* 1: read all bytes, once; keep XXH3-64 of each member, and SHA-256 of
                          each shard's file */
    uint8_t labels;    /* 1: read .cls members, keep their numbers */
    uint8_t force;     /* 1: read all headers again */
    uint64_t seek_interval_bytes; /* access points of gz and zstd shards, so many unpacked bytes
                              apart, at least 65,536; 1: default 1 MiB; 0: none of gz but those that
                              are there; zstd's frames, which cost nothing, 1 MiB apart */
};

/* Gives *indexer_out; the work has begun. dataset: urls and limits, borrowed. */
STOKER_API int stoker_indexer_open(struct stoker_indexer **indexer_out,
                                   struct stoker_engine *engine,
                                   const struct stoker_dataset_options *dataset,
                                   const struct stoker_indexer_options *options,
                                   struct stoker_error *error);

struct stoker_indexer_progress {
    size_t struct_size;
    uint64_t shards, shards_done; /* files of a folder; done ones without those kept */
    uint64_t shards_reused;       /* not read again */
    uint64_t bytes, bytes_done;   /* of shards to be read; 0 while they are listed */
    uint64_t bytes_read;
    uint64_t elapsed_ns;
    uint64_t samples, members, index_bytes; /* at the end */
    const char *path; /* of the index; NULL before it is known. Lent until close */
    /* At the end: compressed shards, those of them that can only be read front to back (one is
     * enough to make the data set sequential), and of the first its path and why. Lent likewise;
     * NULL: there is none. */
    uint64_t shards_compressed, shards_sequential;
    const char *sequential_shard, *sequential_reason;
};
/* 1: goes on (asked again after timeout_ms); 0: the index is there; negative: it failed. */
STOKER_API int stoker_indexer_next(struct stoker_indexer *indexer, uint32_t timeout_ms,
                                   struct stoker_indexer_progress *progress_out,
                                   struct stoker_error *error);
/* Takes indexer; stops the work if it is not done. NULL is fine. */
STOKER_API void stoker_indexer_close(struct stoker_indexer *indexer);

/* ---- marks ---------------------------------------------------------------------------- */

/* Marks of a data set's JPEGs: places where decoding can begin, in the file INDEX.marks beside its
 * index. With them a crop is decoded without what is above it and most of what is beside it; the
 * pixels are the same. A picture whose length or XXH3-64 is another one is decoded without. The
 * data set needs an index file that is true. Threads: one. */
struct stoker_jpeg_indexer;

struct stoker_jpeg_indexer_options {
    size_t struct_size;
    uint32_t mcus; /* from one mark to the next in a row of MCUs; 0: one a row */
    uint8_t check; /* 1: writes nothing; makes the marks again and compares them with the file */
};

struct stoker_jpeg_indexer_progress {
    size_t struct_size;
    uint64_t samples, samples_done;
    uint64_t pictures, bytes; /* JPEGs that were read */
    uint64_t indexed;         /* of them: the others are not baseline, have restart intervals
                                or are damaged */
    uint64_t mismatches;      /* of a check: samples whose marks are not what they should be */
    uint64_t first_mismatch;  /* the sample of the first; STOKER_NO_SAMPLE: none */
    uint64_t file_bytes;      /* at the end */
    const char *path;         /* of the file; lent until close */
};

/* Gives *marker_out. dataset: borrowed until close. UNSUPPORTED: it has no index file, or is read
 * front to back. A check of what is not there: MISSING. */
STOKER_API int stoker_jpeg_indexer_open(struct stoker_jpeg_indexer **marker_out,
                                        struct stoker_dataset *dataset,
                                        const struct stoker_jpeg_indexer_options *options,
                                        struct stoker_error *error);
/* As many samples as are done in about a quarter of a second, by all of the engine's threads (16
 * a thread at least, 512 at most). 1: goes on; 0: the file is there, for data sets opened from now
 * on (or all is checked); negative: it failed, and there is no new file. */
STOKER_API int stoker_jpeg_indexer_next(struct stoker_jpeg_indexer *marker,
                                        struct stoker_jpeg_indexer_progress *progress_out,
                                        struct stoker_error *error);
/* Takes marker; NULL is fine. What is not at its end leaves no file. */
STOKER_API void stoker_jpeg_indexer_close(struct stoker_jpeg_indexer *marker);

/* ---- order ---------------------------------------------------------------------------- */

enum stoker_shuffle {
    STOKER_SHUFFLE_BLOCK = 1, /* blocks, then the samples of a window of them */
    STOKER_SHUFFLE_FULL,      /* one permutation */
    STOKER_SHUFFLE_NONE,      /* storage order */
    STOKER_SHUFFLE_TWO_LEVEL, /* shards, then the samples of each: the classic one; of tars only */
};
enum stoker_tail { STOKER_TAIL_DROP = 1, STOKER_TAIL_PAD, STOKER_TAIL_WRAP, STOKER_TAIL_KEEP };

#define STOKER_ORDER_VERSION 1

/* The pure function behind every loader, for tools and tests: the sample at a position of an
 * epoch, for `sample_count` samples in blocks of block_samples, window_blocks blocks a window,
 * group_count home groups. No I/O. Any thread. */
STOKER_API int stoker_order_at(uint64_t sample_count, uint64_t block_samples,
                               uint32_t window_blocks, uint32_t group_count, uint32_t shuffle,
                               uint64_t seed, uint64_t epoch, uint64_t position,
                               uint64_t *sample_out);

struct stoker_sampler;

/* Several sources in one order. They are ranges of one data set, opened from the list of all of
 * them: source i has the samples from ends[i - 1] (0 for the first) to ends[i], as
 * stoker_dataset_url_end tells.
 *
 * Positions count over all epochs of the run. Of each frame of them (about 1,000; more where a
 * weight is small) every source has as many as its weight says, to within one, in a drawn sequence.
 * A source goes through an order and through epochs of its own: none of its samples is left out.
 * With home groups nearly all samples of a frame stand at positions of the group that the order of
 * their source gives them; a source of fewer than 4 blocks a group is met by all groups. */
enum stoker_mix_end {
    STOKER_MIX_REPEAT = 1,  /* default: a source that is through begins its next epoch */
    STOKER_MIX_STOP,        /* the epoch ends with the first source that has given its limit */
    STOKER_MIX_RENORMALISE, /* the others go on in their proportions, until none is left. After
                               either end sources go on in the next epoch where they were */
};

/* From `position` on: weights of all sources; 0 leaves one out. Positions are of the run; of each
 * epoch where a mix has ends. */
struct stoker_mix_change {
    uint64_t position; /* a multiple of unit_samples */
    const uint64_t *weights;
};

struct stoker_mix_options { /* all pointers are borrowed during open */
    size_t struct_size;
    const uint64_t *ends;                    /* [source_count] */
    const uint64_t *weights;                 /* [source_count]; their sum at most 2^56 */
    const uint64_t *limits;                  /* [source_count]: samples a source gives in an epoch
                                                under STOP and RENORMALISE, 0: without limit; NULL:
                                                each once */
    const struct stoker_mix_change *changes; /* by position, none twice */
    size_t change_count;                     /* at most 4096 */
    uint32_t source_count;                   /* at most 256 */
    uint32_t end;                            /* enum stoker_mix_end */
    uint64_t unit_samples;  /* neighbours of one source: 1 (default) mixes batches, batch_size *
                               world_size makes each step of one source */
    uint64_t epoch_samples; /* under REPEAT: where epochs of the run are cut, a multiple of
                               unit_samples and group_count or the next one; default: as many as
                               the data set has */
    const struct stoker_sampler *const *samplers; /* [source_count]: chosen samples of a source, or
                               drawn ones, in place of all; each made, of a data set of just that
                               source's samples; or NULL. A source then has as many samples as are
                               chosen: for limits too. NULL: none */
};

/* Chosen samples (section sampling) in place of all, each once. Stages follow each other: so a
 * curriculum is a list of subsets and the positions from where on they hold. A stage goes through
 * its samples in passes, each in another order; drawn ones have no passes. */
struct stoker_sampling_stage {
    uint64_t position;                    /* of the run, over all epochs: 0 of the first */
    const struct stoker_sampler *sampler; /* made; NULL: all samples, each once a pass */
};

struct stoker_sampling_options { /* all pointers are borrowed during open */
    size_t struct_size;
    const struct stoker_sampling_stage *stages;
    size_t stage_count;       /* at most 256; 0: one of all samples */
    uint32_t repeats;         /* each sample so many times, each time augmented anew;
                                 default 1 */
    uint32_t repeat_distance; /* positions from copy to copy; default 1: in a row */
    uint64_t epoch_samples;   /* where epochs of the run are cut; default: one pass
                                 of the largest stage, with all repeats */
};

/* An order, how steps are cut of it and how they are dealt to ranks: all that a loader with these
 * settings will do, without data or I/O. Const after open: any thread. */
struct stoker_order;

struct stoker_order_options {
    size_t struct_size;
    uint64_t sample_count, block_samples; /* as stoker_dataset_info has them */
    uint64_t seed;
    uint32_t shuffle, tail, window_blocks, group_count; /* defaults as of a loader */
    uint32_t batch_size;                                /* of a rank */
    uint32_t world_size;                                /* default 1 */
    const struct stoker_mix_options *mix;               /* borrowed; NULL: one order of all */
    const struct stoker_sampling_options *sampling; /* borrowed; NULL: all, once. Not beside a mix.
                                                       Samplers stay open as long as the order */
    const uint64_t *shard_ends; /* borrowed; of two-level: where the samples of each shard end */
    uint64_t shard_count;
};

/* Gives *order_out. */
STOKER_API int stoker_order_open(struct stoker_order **order_out,
                                 const struct stoker_order_options *options,
                                 struct stoker_error *error);
/* Takes order. NULL is fine. */
STOKER_API void stoker_order_close(struct stoker_order *order);
/* Samples of an epoch, over all ranks. */
STOKER_API uint64_t stoker_order_samples(const struct stoker_order *order);
/* Steps of an epoch: of tail wrap, those that begin in it. */
STOKER_API uint64_t stoker_order_steps(const struct stoker_order *order, uint64_t epoch);

#define STOKER_ALL_RANKS UINT32_MAX
#define STOKER_NO_SAMPLE UINT64_MAX

/* One sample's place in the run. */
struct stoker_slot {
    uint64_t step_epoch, step; /* step: counted from the epoch's first */
    uint32_t rank, slot;
    uint64_t epoch, position; /* of the sample; not step_epoch past a wrapped tail */
    uint64_t sample;          /* its id */
    uint8_t real;             /* 0: padding, a repeat */
};

/* Slots of a step, sorted by rank and slot: those behind the first `skip`, at most `capacity`.
 * rank: STOKER_ALL_RANKS, or only this one's. Returns how many it filled, 0 at the end.
 * STOKER_ERROR_ARGUMENT: there is no such step or rank. */
STOKER_API int stoker_order_slots(const struct stoker_order *order, uint64_t epoch, uint64_t step,
                                  uint32_t rank, uint64_t skip, struct stoker_slot *slots_out,
                                  uint32_t capacity);
/* Where a sample comes in an epoch (of the sample's), in O(1): the order's inverse. In a mix it may
 * come several times, or not at all: `skip` of them are passed over. 1: found, 0: a dropped tail
 * has it; STOKER_ERROR_MISSING: it does not come so often; STOKER_ERROR_ARGUMENT: there is no such
 * sample. */
STOKER_API int stoker_order_find(const struct stoker_order *order, uint64_t epoch, uint64_t sample,
                                 uint64_t skip, struct stoker_slot *slot_out);
/* What `count` steps from `step` on (of all ranks) add to stoker_stats.fingerprint: a sum modulo
 * 2^64. STOKER_ERROR_ARGUMENT: there are not so many. */
STOKER_API int stoker_order_fingerprint(const struct stoker_order *order, uint64_t epoch,
                                        uint64_t step, uint64_t count, uint64_t *sum_out);

struct stoker_order_measures;

struct stoker_order_measure_options {
    size_t struct_size;
    uint32_t nodes;          /* of as many ranks each; default 1; at most world_size */
    uint64_t buffer_samples; /* not 0: of a shuffle buffer of so many over the storage order
                                instead: only the mixing is measured */
    uint64_t walk_max;       /* samples: a larger data set's blocks are not walked; default 2^24 */
    /* Written, borrowed during the call: of each source of the mix, or stage of chosen samples. */
    struct stoker_order_measures *parts;
    size_t part_max; /* of parts */
};

struct stoker_order_measures {
    size_t struct_size;
    uint64_t nodes, block_count; /* whole blocks, and the short tail */
    uint64_t window_samples;     /* mixed with each other, in a group */
    uint64_t window_blocks_max;  /* of a node, at once: the windows of the groups that it meets, and
                                    its share of what no group has: never passed */
    /* What a walk through an epoch met: 0 and walked = 0 where there was none. */
    uint8_t walked;
    uint64_t open_blocks_max; /* of any node: begun, and needed again in the epoch */
    uint64_t requests;        /* blocks that nodes fetch in an epoch, each once while it is open */
    uint64_t requests_cached; /* of these, with a cache of 1 / nodes of all blocks on each node */
    double cache_share;       /* of samples: their block was in that cache since the last epoch */
    /* The mixing, of up to 512 steps of all ranks. */
    double distance;     /* between samples that follow each other; in data sets: full 1/3 */
    double displacement; /* of a sample, between disk and epoch; likewise */
    double same_block;   /* share of pairs of batch mates that lie in one block */
    double neighbours;   /* share of samples with one beside them on disk in their batch */
    /* Of a mix and of chosen samples blocks, distances and neighbours are counted within a source
     * or a stage, among the samples that it gives; sources are open beside each other. */
    uint64_t samples;    /* that the epoch gives; walked = 1 */
    uint64_t chosen;     /* different ones that there are */
    uint64_t part_count; /* sources or stages; of a part 0 */
};
/* STOKER_ERROR_BUDGET does not happen: a walk that needs more than 1 GiB is left out. -ENOMEM. */
STOKER_API int stoker_order_measure(const struct stoker_order *order,
                                    const struct stoker_order_measure_options *options,
                                    struct stoker_order_measures *measures_out,
                                    struct stoker_error *error);

struct stoker_order_simulate_options {
    size_t struct_size;
    uint64_t epoch;
    uint32_t nodes;   /* of as many ranks each, and of as many groups; default 1 */
    uint32_t threads; /* default 1, at most 256 */
};

/* Blocks that a node has begun and not finished: the memory that reading whole blocks takes. */
struct stoker_order_simulation {
    size_t struct_size;
    uint64_t steps, slots;      /* of all ranks */
    uint64_t samples;           /* that came */
    uint64_t missing, repeated; /* 0: each sample came exactly once, but for a dropped tail */
    uint64_t requests;          /* blocks that nodes begin, and samples that have no home */
    uint64_t open_blocks_max, open_blocks_bound; /* of any node, in the order of its ranks */
    uint64_t step_blocks_max, step_blocks_bound; /* all ranks at work in the same step */
};
/* Goes through an epoch as each rank of each node does, of data sets and clusters of any size: 1
 * bit of memory a sample and thread. STOKER_ERROR_ARGUMENT: not a block shuffle with tail drop or
 * pad, or nodes do not divide groups and groups the samples of a step. -ENOMEM.
 * A mix, or chosen samples: every position must come exactly once, and in each pass of a source or
 * stage no sample twice; all shuffles, not the tail wrap; one thread; 16 bytes a block and node,
 * and STOKER_ERROR_LIMIT above 1 GiB. */
STOKER_API int stoker_order_simulate(const struct stoker_order *order,
                                     const struct stoker_order_simulate_options *options,
                                     struct stoker_order_simulation *simulation_out,
                                     struct stoker_error *error);

/* A part of a run between two changes. */
struct stoker_order_segment {
    uint32_t world_size, batch_size;
    uint64_t steps; /* 0: to the run's end */
    uint64_t lost;  /* of these, the last ones: the run goes on from a state before them */
};

struct stoker_order_verify_options {
    size_t struct_size;
    const uint32_t *world_sizes; /* borrowed: each divides batch_size * world_size */
    size_t world_size_count;
    uint32_t epochs;    /* default 2, at most 64 */
    uint32_t histories; /* random ones: each changes world and batch, dies and resumes */
    uint64_t seed;      /* of the histories */
    const struct stoker_order_segment *segments; /* borrowed: a run of these, one after the other;
                                                     its last one goes on to the end */
    size_t segment_count;
    uint64_t first_history; /* number of the first: they may be gone through in parts */
    uint8_t histories_only; /* 1: histories draw from the worlds, which are not proved */
};

struct stoker_order_proof {
    size_t struct_size;
    uint64_t slots; /* enumerated */
    uint64_t steps; /* whose set was compared with that of another world */
    uint64_t histories, resizes, kills;
    uint64_t failures; /* 0: each sample comes exactly once, in any of them */
    char failure[256]; /* the first one */
};
/* Proves by enumeration that each sample comes exactly once an epoch (with tail drop: but for those
 * behind the last step), for each world, in each history, and in the run of given stretches; and
 * that what a step holds is the same in all worlds. O(samples * (worlds + histories) * epochs).
 * Of a mix and of chosen samples: that each position comes once with the sample that stands there,
 * and, but for histories_only, each sample once (with repeats so often) in each pass of its source
 * or stage; drawn ones have no passes. -ENOMEM; CORRUPT: a damaged table. */
STOKER_API int stoker_order_verify(const struct stoker_order *order,
                                   const struct stoker_order_verify_options *options,
                                   struct stoker_order_proof *proof_out,
                                   struct stoker_error *error);

struct stoker_order_difference {
    size_t struct_size;
    uint8_t order, step, rank; /* 1: they differ in the order of samples; in what a step of all
                                  ranks holds; in what a rank has of a step */
    uint64_t order_epoch, order_position; /* the first place */
    uint64_t sample_a, sample_b;          /* there; STOKER_NO_SAMPLE */
    uint64_t step_epoch, step_number;
    uint64_t rank_epoch, rank_step;
    uint32_t rank_number;
};
/* Where two set-ups first differ within the first `epochs` epochs. */
STOKER_API int stoker_order_diff(const struct stoker_order *a, const struct stoker_order *b,
                                 uint64_t epochs, struct stoker_order_difference *difference_out,
                                 struct stoker_error *error);

/* ---- sampling ------------------------------------------------------------------------- */

/* Which samples of a data set a loader gives, and how it draws them. Made once: tables of a few
 * bits a sample (a subset 1.3, weights 64, balance 32), in a file beside the data set's index, or
 * in the cache; opened later at no cost, and shared by processes. What was listed by the caller is
 * kept in memory only. Threads: one until it is made, then any.
 *
 * Columns: label (a number), class (its name), size (bytes of all members), key, shard (name of
 * the file), sample (its id); EXT: the text of a member, a number where it is one; EXT.PATH: a
 * place inside JSON, MessagePack or an npz, as of fields ("json.boxes.0.width").
 *
 * Predicates read as in Python: and or not, == != < <= > >=, in and not in a list, is none,
 * COLUMN % number; texts in quotes. "label in (3, 7) and size > 10_000". A comparison with what a
 * sample lacks does not hold. Only what decides is read: put cheap columns to the left. */
struct stoker_sampler;

struct stoker_sampler_options {
    size_t struct_size;
    /* At most one of these; none: all samples. Borrowed by open, as all pointers here. */
    const char *where;       /* a predicate */
    const uint64_t *samples; /* ids; twice is once */
    uint64_t sample_count;
    const char *const *keys; /* all samples that have one of them */
    uint64_t key_count;
    /* At most one of these; none: each sample once in an epoch. */
    uint8_t replacement;   /* 1: each draw is one of all, alike */
    const char *weight;    /* draws with replacement, by the numbers of this column */
    const double *weights; /* by these: one for each sample of the data set */
    uint64_t weight_count;
    const char *balance; /* each value of this column as often as any other; the samples of
                            each in turn */
    uint32_t tables;     /* enum stoker_index_use, of tables in files; default auto */
};

/* Gives *sampler_out: made if a table is there, else next makes it. The data set stays alive. */
STOKER_API int stoker_sampler_open(struct stoker_sampler **sampler_out,
                                   struct stoker_dataset *dataset,
                                   const struct stoker_sampler_options *options,
                                   struct stoker_error *error);
/* Works for about timeout_ms, on the caller and the engine's threads. 1: there is more; 0: it is
 * made. STOKER_ERROR_EMPTY: no sample is chosen; MISSING: a key is not there; a column's damage. */
STOKER_API int stoker_sampler_next(struct stoker_sampler *sampler, uint32_t timeout_ms,
                                   struct stoker_error *error);

struct stoker_sampler_info {
    size_t struct_size;
    uint8_t ready;
    uint64_t sample_count, scanned; /* of the data set; 0 scanned: a table was there */
    uint64_t count, class_count;    /* chosen; of balance. When it is made, as table_bytes */
    uint64_t table_bytes, scan_ns;
    const char *table_path; /* NULL: in memory. Lent until close, as the next */
    const char *table_note; /* why no table was used, or kept; or empty */
};
STOKER_API int stoker_sampler_info(const struct stoker_sampler *sampler,
                                   struct stoker_sampler_info *info_out);
/* Takes sampler; loaders opened on it keep it alive. NULL is fine. */
STOKER_API void stoker_sampler_close(struct stoker_sampler *sampler);

/* ---- loader --------------------------------------------------------------------------- */

/* A stream of batches for one rank. Threads: one loader, one thread at a time; any thread may
 * close a batch, at any time, also after the loader is closed. */
struct stoker_loader;
struct stoker_batch;

enum stoker_field_kind {
    STOKER_FIELD_IMAGE = 1, /* decoded by transforms into dtype and layout */
    STOKER_FIELD_LABEL,     /* int64: directory index (folder) or text of a member (tar) */
    STOKER_FIELD_BYTES,     /* the member's bytes */
    STOKER_FIELD_KEY,       /* the sample's key, UTF-8 bytes */
    STOKER_FIELD_FLOAT,     /* float64: text of a member */
    STOKER_FIELD_SAMPLE,    /* int64: the sample id */
    STOKER_FIELD_TEXT,      /* BYTES: a member, or what is at `path`; UTF-8, checked */
    STOKER_FIELD_INT,       /* int64: text of a member, or a number at `path` */
    STOKER_FIELD_ARRAY,     /* numbers of an npy, npz, JSON or MessagePack member */
    STOKER_FIELD_MASK,      /* [H, W] of a grey or palette PNG, its values as they are stored, or of
                               ids that colours stand for (rgb_ids); goes the way of the image that
                               it follows, resized by nearest */
    STOKER_FIELD_BOXES,     /* ragged float32 [rows, 4]: x1, y1, x2, y2 in pixels of the image that
                               they follow, as it comes out of its transforms */
    STOKER_FIELD_BOX_LABELS, /* ragged int64: numbers that belong to the boxes that are left */
    STOKER_FIELD_JSON,       /* BYTES: a member as it is, checked to be JSON as a whole */
    STOKER_FIELD_MSGPACK,    /* BYTES: the same for MessagePack */
};

/* How boxes are written down. */
enum stoker_box_format { STOKER_XYXY = 1, STOKER_XYWH, STOKER_CXCYWH };

struct stoker_field_options {
    const char *name;
    uint32_t kind;                             /* enum stoker_field_kind */
    const char *extensions;                    /* "jpg;jpeg;png": the first that a sample has;
                                                  NULL: any picture, "cls" for a label */
    const struct stoker_transform *transforms; /* borrowed */
    size_t transform_count;
    uint32_t dtype;  /* of an image; default uint8, float32 if normalised */
    uint32_t layout; /* of an image; default NCHW */
    uint8_t exif;    /* 1: turn by the EXIF orientation */
    /* TEXT, INT, FLOAT, ARRAY, BOXES: a place inside the member. JSON and MessagePack: names and
     * indexes between dots, `*` for each of a list ("objects.*.box"); npz: an array's name. */
    const char *path;
    /* ARRAY, with dtype (default float32): the sides of a sample's array, 3 at most, -1 for one
     * that varies. 0 dimensions: one that varies. All fixed: a plain array; else ragged. */
    uint32_t dimension_count;
    int64_t shape[3];
    const char *follows; /* MASK, BOXES: name of the image; NULL: the first. MASK: dtype uint8
                            (default) or int64 */
    const char *labels;  /* BOX_LABELS: path of the labels; `path` is that of the boxes */
    uint32_t box_format; /* enum stoker_box_format; default xyxy */
    uint8_t normalised;  /* 1: boxes are in shares of the image's sides */
    uint8_t keep_empty;  /* 1: boxes of which nothing is left stay, without area */
    uint8_t planar;      /* IMAGE, 1: a baseline JPEG may be resized before it is upsampled and its
                            colours are converted: faster, and 0.4 of 255 levels off on average from
                            the pixels of libjpeg-turbo and torchvision, which 0 gives. The same
                            bytes each time. A run goes on with the setting that it began with */
    uint8_t rgb_ids;     /* MASK, 1: a value is R + 256 G + 65536 B of the PNG's colours, as in
                            COCO's panoptic masks: dtype int64 */
};

enum stoker_on_error { STOKER_ON_ERROR_RAISE = 1, STOKER_ON_ERROR_SKIP };

struct stoker_loader_options {
    size_t struct_size;
    const struct stoker_field_options *fields; /* borrowed */
    size_t field_count;
    uint32_t batch_size;
    uint32_t shuffle;          /* default block */
    uint32_t tail;             /* default drop */
    uint32_t window_blocks;    /* default 64 */
    uint32_t group_count;      /* home groups: nodes meet the same blocks
                   every epoch where it divides the samples of a step and is
                   a multiple of the nodes, or far above them; default 1 */
    uint32_t rank, world_size; /* default 0 of 1 */
    uint64_t seed;
    uint32_t on_error;                          /* default raise */
    uint32_t batches_ahead;                     /* in flight; default: tuned */
    uint64_t pixels_max;                        /* of a picture; default 178,956,970 */
    uint64_t decode_bytes_max;                  /* of one picture's decoder, or of what one
                                                   member (npz, JSON ...) unpacks and
                                                   parses to; default 1 GiB, within the
                                                   engine's budget */
    uint32_t no_direct_io;                      /* 1: never read ahead by direct I/O */
    uint64_t bad_samples_max;                   /* damaged samples met; 0: no limit */
    double bad_share_max;                       /* of samples delivered, once they are
                                                   1,000; 0: no limit */
    uint32_t bad_list_max;                      /* kept in the quarantine; default 10,000 */
    uint32_t io_retries;                        /* of a read that fails with EIO, ESTALE and
                                                   the like; default 3; STOKER_NO_RETRIES */
    uint32_t io_retry_wait_ms;                  /* before the first; doubles, up to
                                                   10 s; default 100 */
    const char *quarantine;                     /* borrowed: a file that gets a line of JSON for
                                                   each damaged sample; with several ranks
                                                   QUARANTINE.rankN; NULL: none */
    uint32_t worker, worker_count;              /* of the batches of this rank only
                                                   worker, worker + worker_count, ...;
                                                   default 0 of 1 */
    const struct stoker_loader *continues_from; /* borrowed by open: the run's loader on this data
                                          set before it was refreshed, or was another part of it:
                                          its damaged samples stay listed, and count with
                                          what it delivered for the limits; NULL: none */
    const struct stoker_mix_options *mix; /* borrowed; NULL: one order of the whole data set. A
                                             mix has no packed shards */
    uint64_t block_samples;               /* of the order; default: the data set's */
    const struct stoker_sampling_options *sampling; /* borrowed; NULL: all samples, once an epoch.
                                                       Not beside a mix, nor of packed shards */
};

#define STOKER_NO_RETRIES UINT32_MAX

/* Gives *loader_out. The dataset and engine stay alive until loader close. */
STOKER_API int stoker_loader_open(struct stoker_loader **loader_out, struct stoker_dataset *dataset,
                                  const struct stoker_loader_options *options,
                                  struct stoker_error *error);
/* Takes loader; answers within 0.2 s; batches in hand stay valid. */
STOKER_API void stoker_loader_close(struct stoker_loader *loader);

/* Starts an epoch at its first batch. */
STOKER_API int stoker_loader_set_epoch(struct stoker_loader *loader, uint64_t epoch,
                                       struct stoker_error *error);

/* 1: gives *batch_out. 0: the epoch's end (*batch_out NULL; the next call begins the next
 * epoch). STOKER_ERROR_AGAIN: nothing within timeout_ms (call again; used to answer signals).
 * STOKER_ERROR_BUDGET: the caller holds all the memory that the budget grants: close batches and
 * call again. STOKER_ERROR_LIMIT: bad_samples_max or bad_share_max is passed. Other failures: a
 * sample's error. The loader stays before that batch. */
STOKER_API int stoker_loader_next(struct stoker_loader *loader, uint32_t timeout_ms,
                                  struct stoker_batch **batch_out, struct stoker_error *error);

/* Batches that this epoch holds for this rank (and worker). */
STOKER_API uint64_t stoker_loader_batches(const struct stoker_loader *loader, uint64_t epoch);
/* Samples of an epoch, over all ranks: those of the data set, or what the mix says. */
STOKER_API uint64_t stoker_loader_samples(const struct stoker_loader *loader);

/* Where the stream stands: what was given by next() is delivered. */
struct stoker_state {
    uint32_t order_version; /* STOKER_ORDER_VERSION */
    uint32_t shuffle, tail, window_blocks, group_count;
    uint64_t seed, epoch;
    uint64_t position; /* in the epoch, of the global order: all ranks have the same; with
                          several workers, where this one's next batch begins */
    uint64_t sample_count, block_samples;
    uint8_t identity[32];   /* of the data set */
    uint64_t fingerprint;   /* of the order so far: a hash of which sample stood at each position
                               that was delivered to all ranks; what replaced damaged ones does not
                               count. The same on every rank, in every world; with several workers
                               the sum (modulo 2^64) of theirs */
    uint64_t mix;           /* of the mix's settings and changes; 0: none */
    uint64_t subset, draws; /* of samplers and where each begins: which samples, and how they are
                               drawn; 0: all, each once */
    uint64_t epoch_samples; /* as of stoker_sampling_options, as the next; 0: not given */
    uint32_t repeats, repeat_distance; /* 0: no sampling */
};
/* Works out the fingerprint of what was given since the last call, of stats too: 15 to 130 ns a
 * sample of all ranks, on all threads. -ENOMEM; CORRUPT: a sampler's table was damaged. */
STOKER_API int stoker_loader_state(const struct stoker_loader *loader,
                                   struct stoker_state *state_out);
/* The state of when the stream stood there: a few steps ago, for who takes batches ahead of the one
 * that is in use. STOKER_ERROR_ARGUMENT: it did not lie there, or more than 4,096 steps ago. */
STOKER_API int stoker_loader_state_at(const struct stoker_loader *loader, uint64_t epoch,
                                      uint64_t position, struct stoker_state *state_out);
/* Epoch and position of the state alone, at no cost. */
STOKER_API int stoker_loader_position(const struct stoker_loader *loader, uint64_t *epoch_out,
                                      uint64_t *position_out);
/* STOKER_ERROR_STATE with the difference path_args if it belongs to something else. */
STOKER_API int stoker_loader_set_state(struct stoker_loader *loader,
                                       const struct stoker_state *state,
                                       struct stoker_error *error);

/* Where the weights of a mix may change so that all that was delivered stays: a position of the
 * run, at the end of the frame that the stream is in, or of the one that `least` - 1 is in. Open a
 * loader with that change, and give it the state with the `mix` of its own state.
 * STOKER_ERROR_ARGUMENT: there is no mix. */
STOKER_API int stoker_loader_mix_change_position(const struct stoker_loader *loader, uint64_t least,
                                                 uint64_t *position_out);

/* The settings of the loader's order, for stoker_order_open. Of a mix: options_out->mix is what the
 * loader was opened with, and stays (else STOKER_ERROR_ARGUMENT). Pointers of a sampling are lent
 * until loader close. */
STOKER_API int stoker_loader_order(const struct stoker_loader *loader,
                                   struct stoker_order_options *options_out);

#define STOKER_JPEG_REASONS 16
#define STOKER_PNG_READERS 2

struct stoker_stats {
    size_t struct_size;
    uint64_t batches, samples, bytes; /* delivered; bytes of members read */
    uint64_t substituted;             /* samples replaced under on_error = skip */
    uint64_t run_ns;                  /* since the first next() */
    uint64_t wait_ns;                 /* of that, the caller waited in next() */
    uint64_t first_batch_ns;          /* from loader open */
    uint64_t read_ns, decode_ns;      /* thread time */
    uint64_t warm_reads, cold_reads, io_requests;
    uint64_t memory_bytes_peak;      /* of the engine */
    uint64_t lock_wait_ns;           /* thread time */
    uint32_t threads, batches_ahead; /* as tuned now */
    uint64_t idle_ns;                /* thread time without work: the caller is the limit */
    uint64_t retries;                /* of reads */
    uint64_t bad_samples;            /* damaged samples met in what was delivered; with
                                        `after`: of the run */
    uint64_t fingerprint;            /* as of the state */
    /* JPEGs that the engine decoded since loader open: [0] by stoker's own decoder, the others by
     * libjpeg-turbo, which gives the same samples, each for its stoker_jpeg_reason. */
    uint64_t jpegs[STOKER_JPEG_REASONS];
    uint64_t jpegs_indexed; /* of jpegs[0]: from marks on (struct stoker_jpeg_indexer) */
    uint64_t jpegs_planar;  /* of jpegs[0]: resized before their colours were converted */
    /* PNGs likewise: [0] by stoker's own reader, [1] by libpng: interlaced, damaged or unusual. */
    uint64_t pngs[STOKER_PNG_READERS];
    uint64_t io_bytes; /* of io_requests, with what lies between the samples of one */
};
/* Why stoker's own decoder leaves a JPEG to libjpeg-turbo: "progressive", "damaged data", ...
 * NULL: 0, and past the last. */
STOKER_API const char *stoker_jpeg_reason(uint32_t i);
STOKER_API int stoker_loader_stats(const struct stoker_loader *loader,
                                   struct stoker_stats *stats_out);

/* The quarantine: each damaged sample that the delivered batches (or the error of next) met, once,
 * in the order of delivery, whatever the threads. */
struct stoker_quarantine_entry {
    size_t struct_size;
    int status; /* STOKER_ERROR_CORRUPT ... */
    uint64_t sample;
    uint64_t offset;                  /* in the shard; STOKER_NO_OFFSET */
    const char *shard, *key, *reason; /* lent until loader close */
};
/* How many are listed: at most bad_list_max. */
STOKER_API uint64_t stoker_loader_quarantine_count(const struct stoker_loader *loader);
/* STOKER_ERROR_ARGUMENT past the end. */
STOKER_API int stoker_loader_quarantine(const struct stoker_loader *loader, uint64_t index,
                                        struct stoker_quarantine_entry *entry_out);

/* ---- batch ---------------------------------------------------------------------------- */

struct stoker_array {
    void *data;              /* fixed: samples * strides[0] bytes; BYTES: the values */
    const uint64_t *offsets; /* BYTES and ragged: samples + 1 offsets into data; else NULL. BYTES:
                                in bytes. Ragged: in rows, data is [offsets[samples], shape[1],
                                ...]; where `sides` is not NULL: in elements */
    uint32_t dtype;          /* enum stoker_dtype */
    uint32_t dimension_count;
    int64_t shape[4];       /* shape[0] = samples */
    int64_t strides[4];     /* in elements */
    const uint64_t *shapes; /* ragged in more than its first side: [samples, side_count] sides of
                              each sample's array; else NULL */
    uint32_t shape_rank;
};

/* Lends until the batch is closed. field: index into the options' fields. */
STOKER_API int stoker_batch_array(const struct stoker_batch *batch, size_t field,
                                  struct stoker_array *array_out);
STOKER_API uint32_t stoker_batch_samples(const struct stoker_batch *batch);
/* Lends until close: sample id of each slot. */
STOKER_API const uint64_t *stoker_batch_ids(const struct stoker_batch *batch);
/* Lends until close: 1 for a real sample, 0 for padding (STOKER_TAIL_PAD). */
STOKER_API const uint8_t *stoker_batch_mask(const struct stoker_batch *batch);
/* One more holder of the batch: each hold needs its own close. Any thread. */
STOKER_API void stoker_batch_retain(struct stoker_batch *batch);
/* Takes batch. Any thread, any time. NULL is fine. */
STOKER_API void stoker_batch_close(struct stoker_batch *batch);

/* ---- tokens --------------------------------------------------------------------------- */

/* Files of tokens, and a stream of batches of them (fixed windows, packed documents, or documents),
 * in the same order, ranks, tails and states as a loader's. Threads: any, all of this section. */
struct stoker_tokens;
struct stoker_token_loader;

struct stoker_tokens_options {
    size_t struct_size;
    const char *const *paths; /* borrowed; each a file, or a Megatron set: prefix, .bin or .idx.
                                 npy, llm.c's shards and Megatron's sets say what they hold. All
                                 but an .idx may be packed by zstd: in frames, of which those in
                                 use are unpacked */
    size_t path_count;
    uint32_t dtype;       /* of raw files: an integer; default 0: there are none */
    uint64_t cache_bytes; /* of unpacked frames; default: 512 MiB, or a quarter of the
                             memory budget where that is less. One frame always may be */
    /* Without paths: so many tokens in a row that lie elsewhere (text that is tokenised when it is
     * needed, of which only the counts are known), and what tells them from others. Batches of
     * windows of them have no field: their ids say which windows are due. */
    uint64_t virtual_tokens;
    uint8_t identity[32];
};

/* Gives *tokens_out. Files are mapped, not read: they may be replaced by a rename meanwhile, but
 * must not be cut, and costs do not depend on their size. */
STOKER_API int stoker_tokens_open(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                                  const struct stoker_tokens_options *options,
                                  struct stoker_error *error);
/* Takes tokens; the loaders on it go on. NULL is fine. */
STOKER_API void stoker_tokens_close(struct stoker_tokens *tokens);

struct stoker_tokens_info {
    size_t struct_size;
    uint64_t file_count, tokens, bytes;
    uint64_t documents;   /* of Megatron's sets */
    uint64_t frames;      /* of packed files */
    uint8_t identity[32]; /* of dtypes, counts, and 4 KiB at both ends of each file, unpacked */
};
STOKER_API int stoker_tokens_info(const struct stoker_tokens *tokens,
                                  struct stoker_tokens_info *info_out);

enum stoker_token_rows {
    STOKER_ROWS_WINDOWS = 1, /* `context` tokens (and one: see labels) of a file, every `stride` */
    STOKER_ROWS_PACKED,      /* documents, put together by best fit: only one longer than context is
                                cut; what is left of it counts as one more */
    STOKER_ROWS_DOCUMENTS,   /* one document, its first `context` tokens; 0: all. Ragged fields */
    STOKER_ROWS_PADDED,      /* one document, its first `context` tokens, and padding */
};

enum stoker_token_labels {
    STOKER_LABELS_SHIFTED = 1, /* field 1: what comes next at each place; -100 where nothing does.
                                  A window takes one token more for it */
    STOKER_LABELS_NONE,
};

enum stoker_token_positions {
    STOKER_POSITIONS_NONE = 1,
    STOKER_POSITIONS_RESET, /* from 0 in each document, and in padding */
    STOKER_POSITIONS_ROW,   /* from 0 to context - 1 */
};

enum stoker_boundary_labels {
    STOKER_BOUNDARY_MASKED = 1, /* the last token of a document has the label -100 */
    STOKER_BOUNDARY_NEXT,       /* it has the next document's first token */
};

/* Fields of a batch, in this order: tokens; labels, if shifted; positions, if there are; and of
 * packed rows, and where positions are reset, starts: ragged int32, where documents (and padding)
 * begin, counted through the batch as one row, and behind the last row's the batch's end. So all of
 * its numbers are cu_seqlens, as kernels for attention want them. */
struct stoker_token_loader_options {
    size_t struct_size;
    uint64_t context; /* tokens of a row of a field */
    uint64_t stride;  /* windows: tokens from one to the next; default context: each token is a
                         label once. They lie within a file each; what is left is not used */
    uint32_t batch_size;
    uint32_t shuffle; /* as of a loader, these all */
    uint32_t tail;
    uint32_t window_blocks; /* default 64; a block: see block_bytes */
    uint32_t group_count;
    uint32_t rank, world_size;
    uint64_t seed;
    uint32_t labels; /* enum stoker_token_labels; default shifted */
    uint32_t dtype;  /* of the fields: int64 (default) or int32; of documents of uint8 that have no
                        labels (lines of text) uint8, too */
    uint32_t rows;   /* enum stoker_token_rows; default windows */
    uint32_t chunk_documents; /* packed with each other; default 4,096 */
    int32_t pad;              /* the token of padding; default 0 */
    /* Where documents end. Megatron's sets say it; in other files, and within windows, it is behind
     * each token `eod`. */
    uint8_t has_eod;    /* 1: eod is one */
    uint8_t append_eod; /* 1: packed rows and documents of Megatron's sets get one at their end */
    int32_t eod;
    uint32_t boundary_labels; /* enum stoker_boundary_labels; default masked, of windows kept */
    uint32_t positions;       /* enum stoker_token_positions; default none, of packed rows reset */
    /* Fill in the middle (Bavarian et al. 2022): this share of documents (of pieces, of those
     * within a window) becomes prefix, suffix, middle, each behind its sentinel; fim_spm_rate of
     * them with the suffix first. Drawn from (seed, epoch, sample). Packed rows and documents have
     * room for the sentinels; windows lose as many tokens at their end. An eod stays last. */
    double fim_rate, fim_spm_rate; /* 0 to 1; default 0 */
    int32_t fim_prefix, fim_suffix, fim_middle;
    uint64_t block_bytes; /* of tokens as they are stored, about: a block of the order. Default
                             8 MiB */
    /* More of fill in the middle, as Megatron's GPTFIMDataset has it (of tokens, where that looks
     * at text). A document with tokens fim_split is changed, at fim_rate, fragment by fragment:
     * those between two of them at fim_fragment_rate, fim_fragments_max of them at most (default
     * 4): for so many sentinels rows keep room. What begins with fim_no_prefix (borrowed by open;
     * 64 tokens at most) stays as it is. fim_whole: so does what rows cut (Code Llama's rule). */
    double fim_fragment_rate;
    uint8_t has_fim_split, fim_whole;
    int32_t fim_split;
    uint32_t fim_fragments_max;
    const int32_t *fim_no_prefix;
    uint32_t fim_no_prefix_count;
    /* Several sources in one order, which are files of these tokens: its ends are of samples, where
     * stoker_token_loader_file_end says. Fill in the middle is drawn from the position then, so
     * that a row that comes again is another one. Borrowed by open, as rows_of; NULL: one order. */
    const struct stoker_mix_options *mix;
    uint64_t block_samples; /* of the order; default: what block_bytes says */
    /* A loader of the same tokens and rows: what it found out about documents and packing is this
     * one's too, and is not looked for again. */
    const struct stoker_token_loader *rows_of;
};

/* Gives *loader_out. STOKER_ERROR_EMPTY: no file holds a whole window, or a document. Packed rows
 * look at all documents once, and documents that end with eod at all tokens, on all threads. */
STOKER_API int stoker_token_loader_open(struct stoker_token_loader **loader_out,
                                        struct stoker_tokens *tokens,
                                        const struct stoker_token_loader_options *options,
                                        struct stoker_error *error);
/* Takes loader, when no call is in it; batches in hand stay valid. NULL is fine. */
STOKER_API void stoker_token_loader_close(struct stoker_token_loader *loader);
/* 1: gives *batch_out. 0: the epoch's end; the next call begins the next. STOKER_ERROR_BUDGET:
 * close batches and call again. STOKER_ERROR_FORMAT: a token does not fit the dtype. After an
 * error the loader stays before that batch. */
STOKER_API int stoker_token_loader_next(struct stoker_token_loader *loader,
                                        struct stoker_batch **batch_out,
                                        struct stoker_error *error);
STOKER_API uint64_t stoker_token_loader_batches(const struct stoker_token_loader *loader,
                                                uint64_t epoch);
/* Rows of an epoch, over all ranks. */
STOKER_API uint64_t stoker_token_loader_samples(const struct stoker_token_loader *loader);
/* Samples of the files up to and with this one, in the order in which they were opened: rows do not
 * go from one file into the next. STOKER_ERROR_ARGUMENT: there is no such file. */
STOKER_API int stoker_token_loader_file_end(const struct stoker_token_loader *loader, uint64_t file,
                                            uint64_t *samples_out);
/* As stoker_loader_mix_change_position. */
STOKER_API int stoker_token_loader_mix_change_position(struct stoker_token_loader *loader,
                                                       uint64_t least, uint64_t *position_out);
STOKER_API int stoker_token_loader_set_epoch(struct stoker_token_loader *loader, uint64_t epoch,
                                             struct stoker_error *error);
/* As stoker_loader_state; by the caller's thread. */
STOKER_API int stoker_token_loader_state(struct stoker_token_loader *loader,
                                         struct stoker_state *state_out);
/* Epoch and position of the state alone, at no cost. */
STOKER_API int stoker_token_loader_position(struct stoker_token_loader *loader, uint64_t *epoch_out,
                                            uint64_t *position_out);
/* STOKER_ERROR_STATE with the difference path_args. */
STOKER_API int stoker_token_loader_set_state(struct stoker_token_loader *loader,
                                             const struct stoker_state *state,
                                             struct stoker_error *error);

/* Documents in memory, like those that were tokenised on the fly. */
struct stoker_token_documents {
    size_t struct_size;
    const int32_t *tokens; /* borrowed, as the next two: of all documents */
    const uint64_t *ends;  /* [count]: where each ends, in tokens */
    const uint64_t *ids;   /* [count]: they and epoch are what fill in the middle is drawn from */
    uint64_t count, epoch;
};

/* All rows of the documents as one batch, as a token loader makes them. Of windows each document is
 * one: it has just the tokens of a window (see labels). options: those of rows; what concerns order
 * and batches is not looked at. Any thread. */
STOKER_API int stoker_token_rows_batch(struct stoker_batch **batch_out,
                                       struct stoker_engine *engine,
                                       const struct stoker_token_documents *documents,
                                       const struct stoker_token_loader_options *options,
                                       struct stoker_error *error);

/* ---- pack ----------------------------------------------------------------------------- */

/* Writes a data set as tars of a given size (WebDataset), with an index (stoker.index) and a
 * manifest of SHA-256 (stoker.manifest.json). The bytes depend on the source and the options, not
 * on threads or time. All work is done in DESTINATION.part; when everything is on disk, one rename
 * gives it its name. Stopped at any point (close, kill, power), the same call goes on there. Two at
 * once into one destination: the second is refused (-EBUSY), and told of the first. */
struct stoker_pack;

struct stoker_pack_options {
    size_t struct_size;
    const char *destination;   /* borrowed; a folder that is not there, or is empty; ARGUMENT: it
                                  lies in a folder of the source */
    uint64_t shard_bytes;      /* no shard is larger, unless one sample is; default 256 MiB */
    const char *pattern;       /* borrowed; names of shards; default "shard-%06d.tar" */
    uint32_t shuffle;          /* STOKER_SHUFFLE_NONE (default), or _FULL: the order of epoch 0 */
    uint64_t seed;             /* of the shuffle */
    uint32_t short_side;       /* JPEGs with a longer one are made smaller; 0: none is */
    uint32_t quality;          /* of JPEGs made smaller, 1 to 100; default 90 */
    uint32_t on_error;         /* enum stoker_on_error. Raise (default): damage ends the work, and
                                  JPEGs that should be smaller and do not decode are copied. Skip:
                                  samples with damage in their data, such JPEGs too, are left out
                                  and listed */
    uint64_t bad_samples_max;  /* left out; 0: no limit */
    double bad_share_max;      /* of the source's samples; 0: no limit */
    uint32_t bad_list_max;     /* kept for stoker_pack_quarantine; default 10,000 */
    uint32_t io_retries;       /* of a read that fails with EIO, ESTALE and the like; default 3;
                                  STOKER_NO_RETRIES. Then it ends the work, whatever on_error */
    uint32_t io_retry_wait_ms; /* before the first; doubles, up to 10 s; default 100 */
    const char *quarantine; /* borrowed: a file that becomes the list of what was left out, a line
                               of JSON each, before DESTINATION has its name. It may be there only
                               where unfinished work is gone on with (else -EEXIST); NULL: none */
};

enum stoker_pack_phase {
    STOKER_PACK_LISTING = 1, /* sizes and sidecars are asked for */
    STOKER_PACK_WRITING,
    STOKER_PACK_COMMITTING, /* index, manifest, rename */
    STOKER_PACK_DONE,
};

struct stoker_pack_progress {
    size_t struct_size;
    uint32_t phase; /* enum stoker_pack_phase */
    uint64_t shards, shards_done;
    uint64_t samples, samples_done;
    uint64_t bytes, bytes_done; /* of shards; with short_side, bytes is estimated */
    uint64_t shards_resumed, samples_resumed, bytes_resumed; /* of those done: by an earlier run */
    uint64_t resized, copied;  /* JPEGs made smaller, and those that were not; this run */
    uint64_t run_ns;           /* since open */
    uint64_t samples_left_out; /* damaged, also by an earlier run; not in samples_done */
    uint64_t retries;          /* of reads; this run */
};

/* Gives *pack_out and begins, on the dataset's engine and a thread of its own. The dataset stays
 * alive until close. */
STOKER_API int stoker_pack_open(struct stoker_pack **pack_out, struct stoker_dataset *dataset,
                                const struct stoker_pack_options *options,
                                struct stoker_error *error);
/* Waits up to timeout_ms for the end. 1: it goes on; 0: done, DESTINATION is complete. -EEXIST: the
 * destination is there; -EBUSY: another writes it; STOKER_ERROR_STATE: DESTINATION.part is of
 * other options or data, and the first difference is path_args. on_error and the limits may change
 * when unfinished work is gone on with: the bytes are those of the last. STOKER_ERROR_LIMIT: more
 * is damaged than bad_samples_max or bad_share_max allows; what was found is listed, and the same
 * call with higher limits goes on. Fills *progress (may be NULL) in any case. */
STOKER_API int stoker_pack_next(struct stoker_pack *pack, uint32_t timeout_ms,
                                struct stoker_pack_progress *progress, struct stoker_error *error);
/* After the end, a good one or by damage: the samples left out (or, under raise, the one that ended
 * it), each once, in the order of the shards. At most bad_list_max; 0 before the end. */
STOKER_API uint64_t stoker_pack_quarantine_count(struct stoker_pack *pack);
/* Texts are lent until close. STOKER_ERROR_ARGUMENT past the end. */
STOKER_API int stoker_pack_quarantine(struct stoker_pack *pack, uint64_t index,
                                      struct stoker_quarantine_entry *entry_out);
/* Takes pack; stops it if it goes on, within a member. NULL is fine. */
STOKER_API void stoker_pack_close(struct stoker_pack *pack);

/* The same from samples that the caller has, one after the other. Threads: one. */
struct stoker_shard_writer;

struct stoker_shard_writer_options {
    size_t struct_size;
    const char *destination;    /* borrowed, as all pointers below */
    uint64_t shard_bytes;       /* default 256 MiB */
    const char *pattern;        /* default "shard-%06d.tar" */
    const char *const *classes; /* names of the numbers in "cls" members; may be NULL */
    size_t class_count;
    const char *source; /* names what is written (a version, a hash), in UTF-8:
                           unfinished work of another is refused; may be NULL */
};

struct stoker_shard_member {
    const char *extension; /* "jpg", "left.png": becomes lower case */
    const void *data;
    size_t bytes;
};

/* Gives *writer_out. Goes on in DESTINATION.part if it was begun with the same options, else
 * STOKER_ERROR_STATE names the first that differs. -EEXIST: the destination is there; -EBUSY:
 * another writes it. */
STOKER_API int stoker_shard_writer_open(struct stoker_shard_writer **writer_out,
                                        struct stoker_engine *engine,
                                        const struct stoker_shard_writer_options *options,
                                        struct stoker_error *error);
/* Samples that are on disk for good, in whole shards: a caller that goes on after an interruption
 * leaves out so many and adds the next. */
STOKER_API uint64_t stoker_shard_writer_position(const struct stoker_shard_writer *writer);
/* The key of the last sample that position counted at open, for callers whose samples have no
 * numbers; "" when there was none, NULL when all are there and only commit is left. Lent until
 * close. */
STOKER_API const char *stoker_shard_writer_resume_key(const struct stoker_shard_writer *writer);
/* One sample, copied. STOKER_ERROR_ARGUMENT: the key or an extension cannot be one, or was there
 * before; nothing is written then. After another failure: close, open, go on at position. */
STOKER_API int stoker_shard_writer_add(struct stoker_shard_writer *writer, const char *key,
                                       const struct stoker_shard_member *members,
                                       size_t member_count, struct stoker_error *error);
/* The last sample was added: index, manifest, rename. Only close may follow. */
STOKER_API int stoker_shard_writer_commit(struct stoker_shard_writer *writer,
                                          struct stoker_error *error);
/* Takes writer. Without commit, whole shards stay in DESTINATION.part. NULL is fine. */
STOKER_API void stoker_shard_writer_close(struct stoker_shard_writer *writer);

/* ---- verify --------------------------------------------------------------------------- */

/* Reads all bytes of a data set and says what is wrong with them, and where; goes on after
 * damage. A thread of its own and the engine's work; findings come in the order of the shards,
 * whatever the threads. Threads: one, but progress: any. */
struct stoker_verify;

/* Number, name, sentence. */
#define STOKER_FINDINGS(X)                                                                         \
    X(1, UNREADABLE, "unreadable", "the system cannot read it")                                    \
    X(2, HEADER, "header", "a tar header is damaged: what follows is lost up to the next one")     \
    X(3, END, "end", "the data ends early, or not with an end marker")                             \
    X(4, PADDING, "padding", "the bytes between two members are not zero")                         \
    X(5, PACKING, "packing", "the gzip, zstd, bzip2 or xz stream is damaged")                      \
    X(6, NAME, "name", "a member's name is not fit for a key")                                     \
    X(7, DUPLICATE, "duplicate", "a sample has two members with one extension")                    \
    X(8, SCATTERED, "scattered", "members of one sample do not lie together")                      \
    X(9, DIGEST, "digest", "the shard's size or SHA-256 is not the manifest's")                    \
    X(10, CHECKSUM, "checksum", "the member's checksum is not the index's")                        \
    X(11, PICTURE, "picture", "no picture, or its header, chunks or end are damaged")              \
    X(12, PIXELS, "pixels", "the picture does not decode cleanly")                                 \
    X(13, MISNAMED, "misnamed", "a good picture under another kind's name (a note)")               \
    X(14, MISSING, "missing", "the manifest lists a shard that is not there")                      \
    X(15, EXTRA, "extra", "a shard is not in the manifest")                                        \
    X(16, MANIFEST, "manifest", "the manifest itself is damaged")                                  \
    X(17, INDEX, "index", "the index is damaged, or of other data")                                \
    X(18, UNREPAIRED, "unrepaired", "repair left it as it is")                                     \
    X(19, REINDEXED, "reindexed", "a good index, not the one that the manifest names (a note)")    \
    X(20, TABLE, "table", "a zstd seek table tells places where no frame begins")                  \
    X(21, UNPROVEN, "unproven", "repair kept samples that no checksum proves (a note)")

enum stoker_finding_kind {
#define X(number, kind, name, sentence) STOKER_FINDING_##kind = (number),
    STOKER_FINDINGS(X)
#undef X
};

struct stoker_finding {
    uint32_t kind;      /* enum stoker_finding_kind */
    int status;         /* as of the error that reading it would give */
    uint8_t note;       /* 1: worth a look, but reads well: not counted as damage */
    uint64_t offset;    /* as in struct stoker_error */
    char shard[512];    /* path of the shard or file */
    char key[256];      /* empty: not known, or of no sample */
    char extension[64]; /* likewise */
    char what[448];
    char advice[256];
};

struct stoker_verify_options {
    size_t struct_size;
    const char *const *urls; /* borrowed by open: as of a data set */
    size_t url_count;
    uint8_t deep;              /* 1: every picture is decoded; any warning of its library counts */
    uint8_t repair;            /* 1: writes (see below) */
    uint64_t findings_max;     /* kept; the rest is only counted; default 10,000 */
    uint64_t pixels_max;       /* of a picture; default 178,956,970 */
    uint64_t decode_bytes_max; /* of one picture's decoder; default 1 GiB */
    uint32_t key_bytes_max;    /* as of a data set, as all below */
    uint32_t header_bytes_max;
    uint32_t member_gap_max;
    uint64_t decompressed_bytes_max;
    uint32_t decompression_ratio_max;
    uint8_t keep_unverified; /* 1: with repair (see below) */
};

/* Gives *verify_out; work begins. Fails only where there is nothing to verify, or (-EBUSY) another
 * repair is at work there.
 *
 * Repair: a shard with damage is written anew without the samples that have it (whole samples;
 * all other members byte for byte; packed as it was), beside it; then SHARD is also called
 * SHARD.original, the manifest tells of the new one, which takes the name SHARD in one step; a
 * stale index is removed.
 * Where a checksum of the packing is wrong and nothing else is, nobody can tell whether it was
 * damaged or the bytes were: what is under it is left out, but for samples that prove themselves
 * (an index's checksums; PNG alone, by its CRCs). keep_unproven: it is kept, and a note and
 * `unproven` count it.
 * Bad files of a folder ROOT move to ROOT.bad, at the same place in it. An original or moved file
 * that is there already is never written over. Killed at any instant, SHARD or SHARD.original
 * is whole as it was, and the next repair ends it. */
STOKER_API int stoker_verify_open(struct stoker_verify **verify_out, struct stoker_engine *engine,
                                  const struct stoker_verify_options *options,
                                  struct stoker_error *error);
/* 1: fills *finding. 0: all is read (and repaired), and no finding is left. STOKER_ERROR_AGAIN:
 * nothing within timeout_ms. Other failures (memory, writing): verifying ended before its end. */
STOKER_API int stoker_verify_next(struct stoker_verify *verify, uint32_t timeout_ms,
                                  struct stoker_finding *finding, struct stoker_error *error);

struct stoker_verify_progress {
    size_t struct_size;
    uint64_t shards, shards_total; /* shards or files; read so far */
    uint64_t bytes, bytes_total;   /* read; total 0: not known (a folder) */
    uint64_t samples, members;
    uint64_t findings, notes; /* so far, also those past findings_max */
    uint64_t findings_kept;   /* at most findings_max: these next() gives */
    uint64_t repaired;        /* shards written anew, or files moved */
    uint64_t dropped;         /* samples that repair left out */
    uint64_t unverified;      /* samples that it kept, though no checksum proves them */
};
STOKER_API int stoker_verify_progress(struct stoker_verify *verify,
                                      struct stoker_verify_progress *progress);
/* Takes verify; ends work in hand. NULL is fine. */
STOKER_API void stoker_verify_close(struct stoker_verify *verify);
/* Lends for ever: "header", "pixels", ...; and a sentence. Any thread. */
STOKER_API const char *stoker_finding_name(uint32_t kind);
STOKER_API const char *stoker_finding_text(uint32_t kind);

/* ---- diff ----------------------------------------------------------------------------- */

/* Which samples of two data sets differ: matched by key, compared by XXH3-64 of each member (an
 * index's checksums; where it has none, the bytes are read). It finds changes, not forgery: for
 * that compare manifests. Shards and the order of samples and members do not count. Of one key
 * that several samples have, those with the same content go together, the others in order.
 *
 * A folder beside tars: pictures only, a file's name is split as a tar's ("cat/1.jpg": key
 * "cat/1"), so that a folder is the same as what was packed of it. */
struct stoker_diff;

enum stoker_difference_kind {
    STOKER_DIFFERENCE_ADDED = 1, /* only in b */
    STOKER_DIFFERENCE_REMOVED,   /* only in a */
    STOKER_DIFFERENCE_CHANGED,
};

struct stoker_difference {
    uint32_t kind;               /* enum stoker_difference_kind */
    uint64_t sample_a, sample_b; /* ids; STOKER_NO_SAMPLE */
    const char *key;             /* no NUL behind it; lent until close */
    size_t key_bytes;
    char shard_a[512], shard_b[512]; /* paths; empty: not there */
    char members[256]; /* of a changed one: "jpg +txt -json"; "jpg?": packed, perhaps */
};

struct stoker_diff_options {
    size_t struct_size;
    uint8_t reread; /* 1: bytes are read, whatever an index says of them */
};

/* Gives *diff_out; work begins, on the engine of a. Both data sets stay alive until close.
 * STOKER_ERROR_BUDGET: 24 bytes a sample are not granted. options: NULL is fine. */
STOKER_API int stoker_diff_open(struct stoker_diff **diff_out, struct stoker_dataset *a,
                                struct stoker_dataset *b, const struct stoker_diff_options *options,
                                struct stoker_error *error);
/* 1: fills *difference: first what was removed or changed, as it lies in a, then what was added, as
 * it lies in b. 0: no more. STOKER_ERROR_AGAIN: not all is compared after timeout_ms. Other
 * failures: something could not be read. Threads: one. */
STOKER_API int stoker_diff_next(struct stoker_diff *diff, uint32_t timeout_ms,
                                struct stoker_difference *difference, struct stoker_error *error);

struct stoker_diff_progress {
    size_t struct_size;
    uint64_t samples_a, samples_b, samples_done; /* done: of both */
    uint64_t bytes, bytes_total;                 /* read; total: of tars only */
    uint8_t finished;                            /* 1: all below is known */
    uint64_t same, added, removed, changed;
};
/* Any thread. */
STOKER_API int stoker_diff_progress(struct stoker_diff *diff,
                                    struct stoker_diff_progress *progress);
/* Takes diff; ends work in hand. NULL is fine. */
STOKER_API void stoker_diff_close(struct stoker_diff *diff);
/* Lends for ever: "added", "removed", "changed". */
STOKER_API const char *stoker_difference_name(uint32_t kind);

/* ---- stores --------------------------------------------------------------------------- */

/* What was found in one place where credentials may be. */
enum stoker_creds_verdict {
    STOKER_CREDS_SKIPPED = 1, /* it is not set up */
    STOKER_CREDS_USED,
    STOKER_CREDS_FAILED,    /* it is set up and does not work: none is asked behind it */
    STOKER_CREDS_NOT_TRIED, /* an earlier one is used, or failed */
};

struct stoker_creds_step {
    const char *source; /* "shared-credentials-file", as the service's libraries call it; lent
                          for ever */
    uint32_t verdict;   /* enum stoker_creds_verdict */
    char reason[640];   /* "AWS_ACCESS_KEY_ID is not set" */
};

/* Who a URL is asked as. Nothing in it is a secret. */
struct stoker_creds {
    size_t struct_size;
    const char *service; /* "S3"; "": no credentials are for this kind of URL; lent for ever */
    const char *kind;    /* "keys", "bearer token", "SAS", "anonymous"; lent for ever */
    char from[512];      /* "profile 'a', /home/me/.aws/credentials:3" */
    char key[16];        /* the end of the key's name, as Amazon's command shows it; or empty */
    uint64_t expires_ns; /* since 1970; UINT64_MAX: never */
    char endpoint[512], endpoint_from[640]; /* where requests go; and who says so */
    char region[64], region_from[640];      /* S3 */
    uint32_t step_count;
    struct stoker_creds_step steps[16]; /* in the order in which they are looked at */
};

/* What a URL is called wherever it is shown, listed, hashed or written, with a NUL and cut if it
 * must be: without fragment, user, password and what signs it (docs/stores.md); of all else that is
 * no URL of http:// or https:// what was given. In this process the name is as good as the URL from
 * now on, and all of this library's functions take both. The bytes of the whole name, or -ENOMEM.
 * Any thread. */
STOKER_API int64_t stoker_url_alias(const char *url, char *name, size_t name_bytes);
/* The same text, only to be shown: the name stands for nothing more than it did before. */
STOKER_API int64_t stoker_url_redact(const char *url, char *name, size_t name_bytes);

/* Walks along the places as a store does when it is opened, and keeps nothing. Waits for services
 * that are asked, each with its deadline: some seconds where none answers. struct_size is to be
 * set; *creds is filled also on failure, as far as it came. STOKER_ERROR_ARGUMENT: not a URL of a
 * store. Any thread. */
STOKER_API int stoker_creds_explain(const char *url, struct stoker_creds *creds,
                                    struct stoker_error *error);

enum stoker_location_kind {
    STOKER_LOCATION_UNKNOWN = 0, /* one of the two is not told */
    STOKER_LOCATION_SAME,
    STOKER_LOCATION_OTHER_ZONE, /* S3 Express: its bucket is in one zone */
    STOKER_LOCATION_OTHER_REGION,
    STOKER_LOCATION_OTHER_CLOUD,
};

/* Where a bucket is, and where this machine is. */
struct stoker_location {
    size_t struct_size;
    uint32_t kind;             /* enum stoker_location_kind */
    uint8_t machine_known;     /* in: 1: machine_... are of an earlier call, and not asked again */
    const char *service;       /* "S3", "S3 Express", "Google Cloud Storage"; "": of none that
                                  tells; lent for ever, as machine_cloud */
    const char *machine_cloud; /* "Amazon", "Google"; "": none that tells */
    char bucket_region[64], bucket_zone[64], bucket_from[256]; /* from: who told it, or why not */
    char machine_region[64], machine_zone[64], machine_from[256];
    double
        dollars_per_gb; /* of NEAR 0; else dollars that 10^9 bytes cost on their way, estimated */
    char what[192], reason[384], advice[512]; /* of the others; the last may be a command */
};

/* Asks the bucket (HEAD; Google: its location) and the metadata of the machine's cloud, as
 * AWS_EC2_METADATA_..., GCE_METADATA_HOST and NO_GCE_CHECK say, for a second where nobody answers.
 * Of an endpoint of one's own, of Azure, Hugging Face and the web nobody is asked: UNKNOWN.
 * STOKER_ERROR_ARGUMENT: not a URL of a store. Any thread. */
STOKER_API int stoker_location_check(struct stoker_engine *engine, const char *url,
                                     struct stoker_location *where, struct stoker_error *error);

/* ---- files ---------------------------------------------------------------------------- */

/* Files of this machine and objects of stores by their names: a path, s3://bucket/key,
 * gs://bucket/key, az://container/blob, and, to be read only, http://, https://, hf://. */

/* Copying, synchronising and removing. Threads: one a copy. */
struct stoker_copy;

enum stoker_copy_kind { STOKER_COPY = 1, STOKER_SYNC, STOKER_REMOVE };
/* How a store checks what arrives. AUTO: Amazon's CRC64NVME; elsewhere the SHA-256 of the
 * signature, which every server checks. */
enum stoker_copy_check {
    STOKER_CHECK_AUTO = 0,
    STOKER_CHECK_CRC64NVME,
    STOKER_CHECK_CRC32C,
    STOKER_CHECK_SHA256,
    STOKER_CHECK_MD5, /* Content-MD5, the oldest */
};

struct stoker_copy_options {
    size_t struct_size;
    uint32_t kind;              /* enum stoker_copy_kind */
    const char *const *sources; /* borrowed until open returns, as all pointers below */
    size_t source_count;
    const char *destination; /* of REMOVE: NULL */
    uint32_t recursive;      /* a folder is taken with all below it; SYNC: always */
    uint32_t update;       /* leave out what is there in the same size and no older; SYNC: always */
    uint32_t no_clobber;   /* what is there is never replaced: -EEXIST */
    uint32_t delete_extra; /* SYNC: what the source does not have is removed, once all is copied */
    uint32_t unfinished_uploads; /* REMOVE: not objects, but uploads below it that nobody ended */
    uint64_t unfinished_age_s;   /* of these, that are older; default a day */
    uint32_t workers;      /* files or parts at once; default 128, between local folders 2 a core */
    uint64_t part_bytes;   /* of larger files; default 8 MiB, 5 MiB at least */
    uint64_t memory_bytes; /* for parts in flight, of the engine's budget; default 256 MiB */
    uint32_t check;        /* enum stoker_copy_check */
    const char *storage_class;               /* of new objects; NULL: the bucket's */
    const char *encryption, *encryption_key; /* "AES256"; "aws:kms" and its key; or NULL */
    const char *encryption_context; /* of "aws:kms": an object of JSON with texts; or NULL */
};

struct stoker_copy_progress {
    size_t struct_size;
    uint32_t listed;                       /* 1: files and bytes are all there are */
    uint64_t files, bytes;                 /* found so far */
    uint64_t files_done, bytes_done;       /* with those kept */
    uint64_t files_skipped, bytes_skipped; /* were there already, by an earlier run or by update */
    uint64_t files_removed;                /* uploads, where leftovers are removed */
    uint64_t files_failed;                 /* each of which has cost nobody else its place */
    uint64_t links_left_out; /* links out of the source, and to folders; devices, pipes */
    uint64_t run_ns;
    uint64_t
        files_not_deleted; /* by remove_extra: what the destination has where they are, or below */
};

/* Gives *copy_out and begins. A source that is a folder (recursive) comes below the destination
 * with what is in it, without its own name; a file goes to the destination's name, or below it
 * where that is a folder, ends in '/', or several sources are path_args. A name never holds half a
 * file: local ones are written beside it and renamed, objects appear when they are whole. A copy
 * that was killed goes on, when it is begun again, with the parts of large files that it had: they
 * are proven by their hashes (objects), or by size and time of the source (files, as long as the
 * machine runs). */
STOKER_API int stoker_copy_open(struct stoker_copy **copy_out, struct stoker_engine *engine,
                                const struct stoker_copy_options *options,
                                struct stoker_error *error);
/* Waits up to timeout_ms for the end. 1: it goes on; 0: done. Else what failed first; what did not
 * depend on it is done (files_failed counts), but nothing is removed by remove_extra then. Fills
 * *progress (may be NULL) in any case. */
STOKER_API int stoker_copy_next(struct stoker_copy *copy, uint32_t timeout_ms,
                                struct stoker_copy_progress *progress, struct stoker_error *error);
/* Ends transfers now, and waits for that, a second at most. stoker_copy_next then fails, with
 * STOKER_ERROR_CLOSED where nothing else failed before, and its progress has all that was done; 1
 * or 0 as ever where it has not ended yet, or had before. Any thread, but not after close. */
STOKER_API void stoker_copy_stop(struct stoker_copy *copy);
/* Takes copy; stops it, and waits for what is in flight. NULL is fine. */
STOKER_API void stoker_copy_close(struct stoker_copy *copy);

enum stoker_file_kind { STOKER_FILE = 1, STOKER_FOLDER, STOKER_OTHER_FILE };

/* Whether an object lies in an archive of its store, from which it is brought back before it can be
 * read: S3's GLACIER, DEEP_ARCHIVE and archive tiers, Azure's Archive. */
enum stoker_archive {
    STOKER_ARCHIVE_NONE = 0,  /* it can be read; or it is not told */
    STOKER_ARCHIVE_ARCHIVED,  /* it is to be restored first */
    STOKER_ARCHIVE_RESTORING, /* that was asked for, and takes hours */
    STOKER_ARCHIVE_RESTORED,  /* a copy can be read, until restored_until_ns */
};

struct stoker_file_info {
    size_t struct_size;
    uint32_t kind;     /* enum stoker_file_kind */
    uint64_t bytes;    /* of files */
    uint64_t mtime_ns; /* since 1970; 0: not known */
    char etag[256];    /* as the server tells it, with its quotes; empty: none */
    char name[4096];   /* of a walk: below its path; else empty */
    /* Of stoker_stat. */
    char storage_class[32];     /* as the store calls it; empty: its usual one, or not told */
    uint32_t archive;           /* enum stoker_archive */
    uint64_t restored_until_ns; /* since 1970; 0: not told */
};

/* What a path or URL names: of an object without its bytes, so that archived ones are told, too.
 * -ENOENT. */
STOKER_API int stoker_stat(struct stoker_engine *engine, const char *path,
                           struct stoker_file_info *info_out, struct stoker_error *error);

/* What a path or URL with braces or globs stands for: a{000..009}, {a,b}, * ? [a-z] **. 0: itself:
 * something has that very name, or it is no pattern. 1: what matches it, in the order of braces and
 * names. Of http(s):// braces only. Gives *names_out: *count_out names, NUL-ended, one after the
 * other, to be freed by stoker_paths_free. STOKER_ERROR_EMPTY: a glob matches nothing. */
STOKER_API int stoker_paths_expand(struct stoker_engine *engine, const char *path, char **names_out,
                                   size_t *count_out, struct stoker_error *error);
STOKER_API void stoker_paths_free(char *names); /* takes; NULL is fine */

/* All that lies below a path or URL, in no certain order. Threads: one a walk. */
struct stoker_walk;
/* recursive 0: what lies directly there, and folders; 1: all files; 2: and links out of the path
 * and to folders, devices and pipes, which are else left out. A file is one item with an empty
 * name. */
STOKER_API int stoker_walk_open(struct stoker_walk **walk_out, struct stoker_engine *engine,
                                const char *path, uint32_t recursive, struct stoker_error *error);
/* 1: *info_out is the next; 0: that was all; STOKER_ERROR_AGAIN: none came within timeout_ms. */
STOKER_API int stoker_walk_next(struct stoker_walk *walk, uint32_t timeout_ms,
                                struct stoker_file_info *info_out, struct stoker_error *error);
STOKER_API void stoker_walk_close(struct stoker_walk *walk); /* takes; NULL is fine */

/* A file or object, read at any place. Of an object all reads are of the version that was opened:
 * STOKER_ERROR_CHANGED. Threads: any, side by side (close: alone). */
struct stoker_file;
STOKER_API int stoker_file_open(struct stoker_file **file_out, struct stoker_engine *engine,
                                const char *path, struct stoker_file_info *info_out,
                                struct stoker_error *error); /* info_out may be NULL */
/* Waits. Bytes read: fewer than asked for at the end of the file only. */
STOKER_API int64_t stoker_file_read(struct stoker_file *file, uint64_t offset, void *buffer,
                                    size_t bytes, struct stoker_error *error);
STOKER_API void stoker_file_close(struct stoker_file *file); /* takes; NULL is fine */
/* A hint, which waits: these will be opened. Objects are asked for all at once, and opening them
 * within a minute asks no more. */
STOKER_API void stoker_files_prefetch_metadata(struct stoker_engine *engine,
                                               const char *const *paths, size_t count);

struct stoker_range {
    struct stoker_file *file; /* lent for the call; all of one engine */
    uint64_t offset;
    size_t bytes;
    void *buffer;   /* of `bytes`; may be shared by ranges whose bytes do not matter */
    int64_t result; /* out: bytes read, fewer at the file's end only; or a status */
    /* Out, of an object's range that came by itself: from sending its last try until the first and
     * until the last byte of the answer; 0: not known. */
    uint64_t first_byte_ns, complete_ns;
};

struct stoker_ranges_options {
    size_t struct_size;
    uint32_t gap_bytes;     /* ranges of an object with fewer between them come in one request;
                               default 256 KiB, 1: only what touches */
    uint32_t no_coalescing; /* 1: none are joined */
    uint32_t in_flight_max; /* reads at once; default 1,024, and as the engine's io_depth says */
};
/* Reads many ranges side by side and waits for all; files of this machine are read one after the
 * other. options may be NULL. 0, or the status of a range that failed: the others are read all the
 * same. Any thread. */
STOKER_API int stoker_file_read_ranges(struct stoker_range *ranges, size_t count,
                                       const struct stoker_ranges_options *options,
                                       struct stoker_error *error);

/* ---- ground --------------------------------------------------------------------------- */

/* What a path of this machine lies on: file system, server, device, and what of it slows training
 * down. Nothing is asked that can hang the caller: a server that is dead is told as such. */
struct stoker_filesystem;

enum stoker_filesystem_group {
    STOKER_FILESYSTEM_UNKNOWN = 0,
    STOKER_FILESYSTEM_MEMORY,  /* tmpfs */
    STOKER_FILESYSTEM_DISK,    /* ext4, xfs, ... */
    STOKER_FILESYSTEM_NETWORK, /* nfs, lustre, gpfs, beegfs, cephfs, wekafs, 9p, virtiofs, ... */
    STOKER_FILESYSTEM_FUSE,    /* a program of this machine answers */
    STOKER_FILESYSTEM_LAYERED, /* overlay: what is below may be anything */
};

/* Whether the bytes of a file are where they can be read, or in an archive behind it (HSM, a lazily
 * loaded file system). */
enum stoker_residency {
    STOKER_RESIDENCY_UNKNOWN = 0, /* this file system does not tell */
    STOKER_RESIDENCY_RESIDENT,
    STOKER_RESIDENCY_PARTIAL,
    STOKER_RESIDENCY_ARCHIVED, /* the first read fetches them: stoker_prewarm_open */
};

#define STOKER_UNKNOWN UINT64_MAX

struct stoker_filesystem_options {
    size_t struct_size;
    uint32_t timeout_ms; /* for all that asks the file system; default 5,000 */
    uint32_t files_max;  /* of a folder so many files are looked at; default 1,000 */
};

/* Texts are never NULL, and empty where nothing is known; numbers are then STOKER_UNKNOWN. Lent
 * until close. */
struct stoker_filesystem_info {
    size_t struct_size;
    const char *path, *kind; /* "nfs", "ext4", "fuse", ..., "unknown" */
    uint32_t group;          /* enum stoker_filesystem_group */
    uint32_t is_folder, is_read_only;
    uint32_t responds; /* 0: the file system said nothing within timeout_ms; what comes from
                         asking it is not told then */
    const char *mount_point, *type, *source, *options, *server; /* as the table of mounts says */
    uint64_t major, minor;
    uint64_t block_bytes, bytes_total, bytes_free, files_total, files_free; /* for us */
    /* Of a network's or FUSE's mount options. */
    uint64_t read_bytes, write_bytes;           /* of one request: rsize, max_read, msize */
    uint64_t connections;                       /* nconnect: 1 where NFS does not tell otherwise */
    const char *version, *transport, *recovery; /* "4.2"; "tcp"; "hard", "soft", "softerr" */
    uint64_t timeout_tenths, retries;
    uint64_t file_attribute_cache_s,
        folder_attribute_cache_s; /* attributes are believed so long, at most */
    uint64_t read_ahead_bytes;
    /* Of Lustre and CephFS. count UINT32_MAX: all servers. */
    uint64_t stripe_count, stripe_bytes, stripe_parts;
    const char *pool;
    /* Of a disk. */
    const char *device, *scheduler; /* "nvme0n1"; the one in use */
    uint64_t rotational;            /* 1: it turns */
    uint64_t queue_depth;
    /* Of the file, or of files of the folder. */
    uint32_t residency;           /* enum stoker_residency */
    const char *residency_source; /* what told it */
    uint64_t files, files_archived, bytes, bytes_archived;
    /* Of loaders that read here: cold samples so near each other are one read of so many bytes, as
     * long as engine options do not say otherwise (io_gap_bytes, io_bytes_max). */
    uint64_t coalesce_gap_bytes, coalesce_bytes_max;
};

enum stoker_advice_level { STOKER_ADVICE_HINT = 1, STOKER_ADVICE_FINDING };
struct stoker_advice {
    size_t struct_size;
    uint32_t level; /* enum stoker_advice_level; a finding costs training now */
    const char *what, *reason;
    const char *command; /* to be run; empty: there is none */
};

/* Gives *ground_out, also where the file system does not answer. -ENOENT: there is no such path;
 * ARGUMENT: a URL. Threads: one. */
STOKER_API int
stoker_filesystem_open(struct stoker_filesystem **ground_out, const char *path,
                       const struct stoker_filesystem_options *options, /* may be NULL */
                       struct stoker_error *error);
STOKER_API int stoker_filesystem_info(const struct stoker_filesystem *ground,
                                      struct stoker_filesystem_info *info);
/* 1: fills *advice, the index-th; 0: there are no more. */
STOKER_API int stoker_filesystem_advice(const struct stoker_filesystem *ground, uint32_t index,
                                        struct stoker_advice *advice);
STOKER_API void stoker_filesystem_close(struct stoker_filesystem *ground); /* takes; NULL is fine */

/* ---- prewarm -------------------------------------------------------------------------- */

/* Reads files ahead of training, once and by many threads: into the page cache, out of an archive
 * behind the file system, into what stands before a store (a proxy). Nothing is kept of objects on
 * this machine. What the page cache has is passed over, so a run that was killed, begun again, goes
 * on where it was. Threads: one a prewarm. */
struct stoker_prewarm;

struct stoker_prewarm_options {
    size_t struct_size;
    const char *const *paths; /* files, folders (with all below) or URLs; borrowed for the call */
    size_t path_count;
    uint32_t workers;     /* reads at once; default 16, at most 64 */
    uint32_t chunk_bytes; /* of a file at a time; default 4 MiB, 64 KiB to 64 MiB */
    uint32_t timeout_s;   /* for all of it; 0: none, and a read that is late is tried 3 times */
    uint8_t check;        /* 1: reads nothing: says what is cold */
    uint8_t touch;        /* 1: of each file one byte, for archives that bring whole files */
};

struct stoker_prewarm_progress {
    size_t struct_size;
    uint32_t listed;        /* 1: files and bytes are all there are */
    uint32_t cold_is_known; /* 1: bytes_warm and bytes_cold are known, of files of this machine */
    uint64_t files, bytes;  /* found so far */
    uint64_t files_done, bytes_done; /* read, or passed over */
    uint64_t bytes_read;
    uint64_t bytes_warm; /* were in the page cache before */
    uint64_t bytes_cold; /* are not in it, after they were read (of a check: now), in whole pages */
    uint64_t files_failed;
    uint64_t run_ns;
};

/* Gives *prewarm_out and begins. */
STOKER_API int stoker_prewarm_open(struct stoker_prewarm **prewarm_out,
                                   struct stoker_engine *engine,
                                   const struct stoker_prewarm_options *options,
                                   struct stoker_error *error);
/* Waits up to timeout_ms for the end. 1: it goes on; 0: done. Else what failed first: the other
 * files were read nevertheless; STOKER_ERROR_TIMEOUT: not all in timeout_s. Fills *progress (may be
 * NULL) in any case. */
STOKER_API int stoker_prewarm_next(struct stoker_prewarm *prewarm, uint32_t timeout_ms,
                                   struct stoker_prewarm_progress *progress,
                                   struct stoker_error *error);
/* Takes prewarm; stops it, and waits for reads in flight. NULL is fine. */
STOKER_API void stoker_prewarm_close(struct stoker_prewarm *prewarm);

#ifdef __cplusplus
}
#endif
#endif

/* The options of all commands in one table, and the parser: getopt_long neither suggests similar
 * options nor parses units. */
#include "programs/cli/args.h"

#include "base/text/parse_number.h"
#include "programs/cli/terminal.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum option_kind {
    OPTION_FLAG,
    OPTION_NUMBER,
    OPTION_BYTES,
    OPTION_SECONDS,
    OPTION_SHARE,
    OPTION_CHOICE,
    OPTION_TEXT,
    OPTION_MAYBE_NUMBER, /* this and the next: a value only after '='; without a value 1 */
    OPTION_MAYBE_BYTES,
    OPTION_FILTER, /* repeatable text; low: its sign */
    OPTION_ALIAS,  /* a hidden former spelling of the option that `value` names */
};

struct option {
    const char *name;
    const char *value; /* its name in the help; choices: "a|b|c", numbered from `low` */
    uint32_t commands;
    uint32_t kind;
    size_t field; /* offset in struct args */
    uint64_t low, high;
    const char *help;
};

#define FIELD(name) offsetof(struct args, name)
#define READERS (COMMAND_LS | COMMAND_CAT | COMMAND_INFO | COMMAND_BENCH)
#define TOOLS (COMMAND_INDEX | COMMAND_PACK | COMMAND_VERIFY | COMMAND_DIFF)
#define COPIES (COMMAND_CP | COMMAND_SYNC | COMMAND_MV)
#define FILES (COPIES | COMMAND_RM | COMMAND_STAT)
#define ALL                                                                                        \
    (READERS | TOOLS | COMMAND_ORDER | COMMAND_SAMPLE | FILES | COMMAND_BENCH_STORE |              \
     COMMAND_PREWARM | COMMAND_CKPT | COMMAND_PRESIGN)
#define STREAM (COMMAND_INFO | COMMAND_BENCH)
#define ORDERED (STREAM | COMMAND_ORDER)

/* clang-format off */
static const struct option options[] = {
    {"filesystem", NULL, COMMAND_INFO, OPTION_FLAG, FIELD(filesystem), 0, 0,
     "show only the file system below PATH; do not open the data set"},
    {"json", NULL, COMMAND_LS | ORDERED | TOOLS | COMMAND_SAMPLE | COMMAND_CREDS | FILES |
     COMMAND_BENCH_STORE | COMMAND_PREWARM | COMMAND_CKPT | COMMAND_PRESIGN | COMMAND_CLEAN |
     COMMAND_CACHE,
     OPTION_FLAG, FIELD(json), 0, 0,
     "JSON output, one object a line"},
    {"expires", "SECONDS", COMMAND_PRESIGN, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "how long the URL is valid; default 3600, at most 604800 (a week)"},
    {"put", NULL, COMMAND_PRESIGN, OPTION_FLAG, FIELD(put), 0, 0,
     "a URL to write the object with PUT; default: to read it"},
    {"check", NULL, COMMAND_PREWARM, OPTION_FLAG, FIELD(check_only), 0, 0,
     "read nothing; report how much is cold (not in the page cache)"},
    {"touch", NULL, COMMAND_PREWARM, OPTION_FLAG, FIELD(touch), 0, 0,
     "read one byte of each file: for archives that restore entire files"},
    {"workers", "N", COMMAND_PREWARM, OPTION_NUMBER, FIELD(workers), 1, 64,
     "concurrent reads; default 16"},
    {"chunk-size", "BYTES", COMMAND_PREWARM, OPTION_BYTES, FIELD(chunk_bytes), 64u << 10, 64u << 20,
     "bytes of one read; default 4M"},
    {"seconds", "S", COMMAND_PREWARM, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "stop after S seconds; the same command continues; default: no limit"},
    {"node", "K/N", COMMAND_PREWARM, OPTION_TEXT, FIELD(node), 0, 0,
     "fill the node cache (--cache) with the blocks of node K of N, from 0, in the order of use"},
    {"budget", "BYTES", COMMAND_PREWARM, OPTION_BYTES, FIELD(budget_bytes), 1, UINT64_MAX,
     "with --node: fill at most so many bytes of blocks"},
    {"rate", "BYTES", COMMAND_PREWARM, OPTION_BYTES, FIELD(rate_bytes), 1, UINT64_MAX,
     "with --node: download at most so many bytes a second"},
    {"files", NULL, COMMAND_LS, OPTION_FLAG, FIELD(files), 0, 0,
     "list files, objects and folders instead of samples"},
    {"recursive", NULL, COMMAND_LS | COMMAND_CP | COMMAND_MV | COMMAND_RM, OPTION_FLAG,
     FIELD(recursive), 0, 0,
     "include everything below folders (-r); ls: together with --files"},
    {"update", NULL, COMMAND_CP, OPTION_FLAG, FIELD(update), 0, 0,
     "skip files whose destination is equal, see --compare"},
    {"compare", "time|size|checksum", COMMAND_CP | COMMAND_SYNC, OPTION_CHOICE, FIELD(compare),
     STOKER_COMPARE_TIME, 0,
     "how --update and sync find equal files, beside their sizes: by the time of change (default), "
     "by nothing else, or by the checksums that stores report, without reading objects"},
    {"dry-run", NULL, COPIES | COMMAND_RM, OPTION_FLAG, FIELD(dry_run), 0, 0,
     "change nothing; list what would be copied and removed (-n)"},
    {"include", "PATTERN", COPIES | COMMAND_RM, OPTION_FILTER, FIELD(filters), '+', 0,
     "select files; may be repeated and mixed with --exclude: the last match decides. '*.jpg' "
     "matches names at any depth, 'a/*.jpg' and 'a/**' paths below the source. If the first "
     "filter is --include, other files are left out"},
    {"exclude", "PATTERN", COPIES | COMMAND_RM, OPTION_FILTER, FIELD(filters), '-', 0,
     "leave out files, and everything below folders, that match; sync --delete keeps them"},
    {"files-from", "FILE", COMMAND_CP | COMMAND_MV | COMMAND_RM, OPTION_TEXT, FIELD(files_from), 0,
     0,
     "read names from FILE ('-': stdin), one a line, or separated by NUL bytes; they are no "
     "patterns. With one SRC they are paths below it, and keep them; else they are the sources"},
    {"bandwidth", "BYTES", COPIES | COMMAND_CKPT, OPTION_BYTES, FIELD(bandwidth), 1, UINT64_MAX,
     "bytes a second of all transfers together; default: no limit"},
    {"system-files", NULL, COMMAND_CP | COMMAND_SYNC, OPTION_FLAG, FIELD(system_files), 0, 0,
     "also copy what operating systems and notebooks leave in folders: ._x, .DS_Store, Thumbs.db"},
    {"no-clobber", NULL, COPIES, OPTION_FLAG, FIELD(no_clobber), 0, 0,
     "never replace a file or an object; fail if the destination exists"},
    {"delete", NULL, COMMAND_SYNC, OPTION_FLAG, FIELD(delete_extra), 0, 0,
     "after copying, remove destination files that the source does not have"},
    {"unfinished-uploads", NULL, COMMAND_RM, OPTION_FLAG, FIELD(unfinished_uploads), 0, 0,
     "remove unfinished multipart uploads below PATH instead of objects"},
    {"older-than", "SECONDS", COMMAND_RM, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "with --unfinished-uploads: minimum age of an upload; default a day"},
    {"older-than", "SECONDS", COMMAND_CLEAN, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "leave out files that were used in this time; default 0"},
    {"yes", NULL, COMMAND_RM | COMMAND_CLEAN, OPTION_FLAG, FIELD(yes), 0, 0,
     "remove without a prompt (-y)"},
    {"workers", "N", COPIES | COMMAND_RM, OPTION_NUMBER, FIELD(workers), 1, 256,
     "concurrent files, or parts of large files; default 128, between local folders 2 a core"},
    {"part-size", "BYTES", COPIES, OPTION_BYTES, FIELD(part_bytes), 5u << 20, 1u << 30,
     "copy larger files in parts of this size; default 8M"},
    {"check", "crc64nvme|crc32c|sha256|md5", COPIES, OPTION_CHOICE, FIELD(check),
     STOKER_CHECK_CRC64NVME, 0,
     "checksum by which the store verifies an upload; default: crc64nvme on Amazon S3, elsewhere "
     "the SHA-256 of the signature"},
    {"storage-class", "NAME", COPIES, OPTION_TEXT, FIELD(storage_class), 0, 0,
     "storage class of new objects; default: the bucket's"},
    {"sse", "AES256|aws:kms", COPIES, OPTION_TEXT, FIELD(encryption), 0, 0,
     "server-side encryption of new objects; default: the bucket's"},
    {"sse-kms-key", "ID", COPIES, OPTION_TEXT, FIELD(encryption_key), 0, 0,
     "key of --sse aws:kms"},
    {"sse-kms-context", "JSON", COPIES, OPTION_TEXT, FIELD(encryption_context), 0, 0,
     "encryption context of --sse aws:kms: {\"name\": \"text\"}"},
    {"sizes", "N,N", COMMAND_BENCH_STORE, OPTION_TEXT, FIELD(sizes), 0, 0,
     "sizes of the ranges; ranges above 8M take several requests; default 64K,1M,8M"},
    {"concurrency", "N,N", COMMAND_BENCH_STORE, OPTION_TEXT, FIELD(concurrency), 0, 0,
     "ranges in flight; default 1,8,32,64"},
    {"seconds", "S", COMMAND_BENCH_STORE, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "time limit of all reads together; each size and concurrency is measured at least once; "
     "default 20"},
    {"bytes", "BYTES", COMMAND_BENCH_STORE, OPTION_BYTES, FIELD(bytes_max), 1, UINT64_MAX / 4,
     "start no more reads after this many bytes; default 4G"},
    {"write", NULL, COMMAND_BENCH_STORE, OPTION_FLAG, FIELD(write), 0, 0,
     "write about 70 MB below URL first, measure this too, read it, and remove it"},
    {"plot", "FILE", COMMAND_BENCH_STORE, OPTION_TEXT, FIELD(plot), 0, 0,
     "write charts and the table as a page (.html), or only the charts (.svg, .png)"},
    {"seed", "N", COMMAND_BENCH_STORE, OPTION_NUMBER, FIELD(seed), 0, UINT64_MAX - 1,
     "seed of the random offsets; default 0"},
    {"shards", NULL, COMMAND_LS, OPTION_FLAG, FIELD(shards), 0, 0,
     "one line for each shard (in a folder: for each class folder) instead of each sample"},
    {"all", NULL, COMMAND_CACHE, OPTION_FLAG, FIELD(all), 0, 0, "drop: all objects"},
    {"step", "N", COMMAND_CKPT, OPTION_TEXT, FIELD(step), 0, 0,
     "the step; default: the newest one"},
    {"all", NULL, COMMAND_CKPT, OPTION_FLAG, FIELD(all), 0, 0, "verify: all steps"},
    {"deep", NULL, COMMAND_CKPT, OPTION_FLAG, FIELD(deep), 0, 0,
     "inspect: read the tensors, and show their statistics"},
    {"stats", NULL, COMMAND_CKPT, OPTION_FLAG, FIELD(deep), 0, 0,
     "inspect: as --deep: minimum, maximum, mean, NaN, Inf and a histogram"},
    {"html", "FILE", COMMAND_CKPT, OPTION_TEXT, FIELD(html), 0, 0,
     "inspect: write a page instead; with --stats with histograms"},
    {"keep-last", "N", COMMAND_CKPT, OPTION_NUMBER, FIELD(keep_last), 1, UINT32_MAX,
     "gc: keep the newest N steps"},
    {"keep-every", "N", COMMAND_CKPT, OPTION_NUMBER, FIELD(keep_every), 1, UINT64_MAX,
     "gc: also keep steps that are a multiple of N"},
    {"keep-best", "METRIC:N", COMMAND_CKPT, OPTION_TEXT, FIELD(keep_best), 0, 0,
     "gc: also keep the N steps with the lowest value; METRIC:N:max: the highest"},
    {"dry-run", NULL, COMMAND_CKPT, OPTION_FLAG, FIELD(dry_run), 0, 0, "gc: only count"},
    {"to", "stoker|safetensors|hf|torch", COMMAND_CKPT, OPTION_TEXT, FIELD(to), 0, 0,
     "convert: what is written; default: what the name of the destination says"},
    {"from", "PATH", COMMAND_CKPT, OPTION_TEXT, FIELD(from), 0, 0,
     "repair: another place with the same step"},
    {"save-seconds", "S", COMMAND_CKPT, OPTION_SECONDS, FIELD(save_seconds), 0, 0,
     "advise: how long a save stalls the training"},
    {"mtbf", "S", COMMAND_CKPT, OPTION_SECONDS, FIELD(mtbf), 0, 0,
     "advise: mean seconds between failures; with --nodes: of one node"},
    {"nodes", "N", COMMAND_CKPT, OPTION_NUMBER, FIELD(nodes), 1, UINT32_MAX,
     "advise: number of nodes; a failure of one ends the run"},
    {"restart-seconds", "S", COMMAND_CKPT, OPTION_SECONDS, FIELD(restart_seconds), 0, 0,
     "advise: how long a restart takes; default 0"},
    {"shard-size", "BYTES", COMMAND_CKPT, OPTION_BYTES, FIELD(shard_bytes), 4096, UINT64_MAX / 4,
     "convert --to hf: maximum size of a file (a larger tensor gets one of its own); default 5 GB"},
    {"limit", "N", COMMAND_LS | COMMAND_VERIFY | COMMAND_DIFF | COMMAND_CKPT | COMMAND_CACHE,
     OPTION_NUMBER,
     FIELD(limit), 1, UINT64_MAX, "print at most N lines"},
    {"deep", NULL, COMMAND_VERIFY, OPTION_FLAG, FIELD(deep), 0, 0,
     "decode all pixels; a warning of the image decoder counts as damage"},
    {"repair", NULL, COMMAND_VERIFY, OPTION_FLAG, FIELD(repair), 0, 0,
     "rewrite damaged shards without their damaged samples; keep SHARD.original"},
    {"keep-unverified", NULL, COMMAND_VERIFY, OPTION_FLAG, FIELD(keep_unverified), 0, 0,
     "with --repair: keep samples for which only a checksum of the compressed data is wrong"},
    {"reread", NULL, COMMAND_DIFF, OPTION_FLAG, FIELD(reread), 0, 0,
     "read all bytes even if an index has checksums"},
    {"batch", "N", STREAM | COMMAND_ORDER, OPTION_NUMBER, FIELD(batch), 1, 1u << 20,
     "samples of a batch; default 256"},
    {"image", "PIXELS", STREAM, OPTION_NUMBER, FIELD(image), 1,
     STOKER_TRANSFORM_SIDE_MAX,
     "decode to PIXELS x PIXELS as training does (RandomResizedCrop, flip); default 224"},
    {"dtype", "uint8|float32|float16|bfloat16", STREAM, OPTION_CHOICE, FIELD(dtype),
     STOKER_UINT8, 0,
     "type of pixels; all types but uint8 are normalised; default float32"},
    {"stored", "int8|int16|uint16|int32|uint32|uint64", STREAM | COMMAND_LS, OPTION_CHOICE,
     FIELD(stored), STOKER_INT8, 0,
     "type of the tokens in raw token files (.bin)"},
    {"layout", "nchw|nhwc", COMMAND_BENCH, OPTION_CHOICE, FIELD(layout), STOKER_NCHW, 0,
     "layout of pixels; default nchw"},
    {"raw", NULL, COMMAND_BENCH, OPTION_FLAG, FIELD(raw), 0, 0,
     "read the members without decoding them"},
    {"fields", "EXT,EXT", COMMAND_BENCH, OPTION_TEXT, FIELD(fields), 0, 0,
     "with --raw: members to read (jpg;png,cls: jpg or png, and cls); default: those of the first "
     "sample"},
    {"shard-size", "BYTES", COMMAND_PACK, OPTION_BYTES, FIELD(shard_bytes), 4096, UINT64_MAX / 4,
     "maximum size of a shard (a larger sample gets a shard of its own); default 256M"},
    {"staging-dir", "DIR", COMMAND_PACK, OPTION_TEXT, FIELD(staging_dir), 0, 0,
     "local folder for shards before they are uploaded to a URL; default: the cache"},
    {"pattern", "NAME", COMMAND_PACK, OPTION_TEXT, FIELD(pattern), 0, 0,
     "names of the shards; default shard-%06d.tar"},
    {"shuffle", "SEED", COMMAND_PACK, OPTION_TEXT, FIELD(shuffle_seed), 0, 0,
     "seed of the shuffle of the samples; default 0"},
    {"keep-order", NULL, COMMAND_PACK, OPTION_FLAG, FIELD(keep_order), 0, 0,
     "do not shuffle: keep the order of the source, in which classes may lie one after the other"},
    {"short-side", "N", COMMAND_PACK, OPTION_NUMBER, FIELD(short_side), 1, 1u << 16,
     "shrink JPEGs whose short side is longer than N pixels; copy the others"},
    {"quality", "N", COMMAND_PACK, OPTION_NUMBER, FIELD(quality), 1, 100,
     "JPEG quality of shrunk images; default 90"},
    {"shuffle", "block|full|none|two-level", ORDERED, OPTION_CHOICE, FIELD(shuffle),
     STOKER_SHUFFLE_BLOCK, 0,
     "the order; two-level: shards, then the samples of each; default: full where reads in any "
     "order cost no more (folders, tars on local disks), else block"},
    {"window-blocks", "N", ORDERED, OPTION_NUMBER, FIELD(window_blocks), 1, UINT32_MAX,
     "blocks of a shuffle window; default 64, or for the default order those that fill half of the "
     "memory"},
    {"order-version", "1|2", COMMAND_ORDER, OPTION_NUMBER, FIELD(order_version), 1,
     STOKER_ORDER_VERSION, "version of the order, of a run that began with version 1; default 2"},
    {"labels", "FILE", COMMAND_ORDER, OPTION_TEXT, FIELD(labels_path), 0, 0,
     "report the mixing of these labels, one a line for each sample; default: classes of a folder, "
     "members cls of tars on local disks"},
    {"home-groups", "N", ORDERED | COMMAND_PREWARM, OPTION_NUMBER, FIELD(home_groups), 1,
     UINT32_MAX,
     "groups of blocks. Each node reads the same blocks in every epoch if N divides the samples of "
     "a step and is a multiple of the nodes, or much larger; default 1"},
    {"seed", "N", COMMAND_BENCH | COMMAND_ORDER | COMMAND_PREWARM, OPTION_NUMBER, FIELD(seed), 0,
     UINT64_MAX,
     "seed of the order and of augmentation; default 0"},
    {"world-size", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(world_size), 1, UINT32_MAX,
     "number of ranks; a step is N batches; default 1"},
    {"nodes", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(nodes), 1, UINT32_MAX,
     "number of machines, each with a cache and an equal number of ranks; default 1"},
    {"tail", "drop|pad|wrap|keep", COMMAND_ORDER, OPTION_CHOICE, FIELD(tail), STOKER_TAIL_DROP, 0,
     "handling of the samples after the last complete step of an epoch; default drop"},
    {"epoch", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(epoch), 0, UINT64_MAX,
     "the epoch of --at and --simulate, the first of --find; default 0"},
    {"epochs", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(epochs), 1, UINT64_MAX,
     "number of epochs for --find, --diff and --verify (at most 64); default 3, 3 and 2"},
    {"at", "STEP", COMMAND_ORDER, OPTION_TEXT, FIELD(at), 0, 0,
     "list the samples of a step: which samples were in the batch where the loss jumped?"},
    {"rank", "N", COMMAND_ORDER, OPTION_TEXT, FIELD(rank), 0, 0,
     "with --at: list only this rank"},
    {"subset", "PREDICATE", COMMAND_SAMPLE | COMMAND_ORDER, OPTION_TEXT, FIELD(subset), 0, 0,
     "only samples for which the predicate is true: 'label in (3, 7) and size > 10_000'"},
    {"weights", "COLUMN", COMMAND_SAMPLE | COMMAND_ORDER, OPTION_TEXT, FIELD(weights), 0, 0,
     "draw with replacement, with probabilities in proportion to this column"},
    {"balance", "COLUMN", COMMAND_SAMPLE | COMMAND_ORDER, OPTION_TEXT, FIELD(balance), 0, 0,
     "draw each value of this column equally often"},
    {"replacement", NULL, COMMAND_ORDER, OPTION_FLAG, FIELD(replacement), 0, 0,
     "draw with replacement, all samples with the same probability"},
    {"curriculum", "STAGES", COMMAND_ORDER, OPTION_TEXT, FIELD(curriculum), 0, 0,
     "a list POSITION:PREDICATE; each predicate selects the samples from its position of the run "
     "on: '0:size < 9_000;300000:' are small samples first, then all"},
    {"repeats", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(repeats), 1, 65536,
     "repeat each sample N times; default 1"},
    {"repeat-distance", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(repeat_distance), 1, 1u << 24,
     "positions between two repeats of a sample; default 1: adjacent"},
    {"epoch-samples", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(epoch_samples), 1,
     UINT64_C(1) << 56,
     "length of an epoch of selected samples; default: one pass, with its repeats"},
    {"find", "KEY", COMMAND_ORDER, OPTION_TEXT, FIELD(find), 0, 0,
     "list the steps that contain a sample (without PATH: its number)"},
    {"diff", "SETTINGS", COMMAND_ORDER, OPTION_TEXT, FIELD(diff), 0, 0,
     "first difference from another configuration: seed=1,window-blocks=128,world-size=16 ..."},
    {"verify", NULL, COMMAND_ORDER, OPTION_FLAG, FIELD(verify), 0, 0,
     "verify by enumeration that each sample occurs exactly once"},
    {"world-sizes", "N,N", COMMAND_ORDER, OPTION_TEXT, FIELD(world_sizes), 0, 0,
     "world sizes that --verify checks; default: up to 8 divisors of a step"},
    {"random-runs", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(random_runs), 1, UINT32_MAX,
     "random runs that --verify checks, with resizes, other batch sizes and kills; default 20"},
    {"scenario", "RUN", COMMAND_ORDER, OPTION_TEXT, FIELD(scenario), 0, 0,
     "with --verify: verify this run, a list of segments RANKSxBATCH:STEPS-LOST: 8x32:5-2,4x64 "
     "is 5 steps on 8 ranks, a kill, and 4 ranks that resume from the state 2 steps before"},
    {"simulate", NULL, COMMAND_ORDER, OPTION_FLAG, FIELD(simulate), 0, 0,
     "simulate an epoch on all ranks: how many blocks each node has open; any size of data set"},
    {"samples", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(samples), 1, UINT64_C(1) << 56,
     "without PATH: number of samples of a planned data set"},
    {"block-samples", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(block_samples), 1,
     UINT64_C(1) << 56, "samples of a block; default: the data set's"},
    {"mix", "N,N", COMMAND_ORDER, OPTION_TEXT, FIELD(mix), 0, 0,
     "mix sources: one weight for each PATH, 3,2,1; 3,2,1/5000:0,1,1 changes the weights at "
     "position 5000"},
    {"mix-end", "repeat|stop|renormalise", COMMAND_ORDER, OPTION_CHOICE, FIELD(mix_end),
     STOKER_MIX_REPEAT, 0, "what happens at the end of a source; default repeat"},
    {"mix-epoch", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(mix_epoch), 1, UINT64_C(1) << 56,
     "length of an epoch of a mix that repeats; default: the samples of all sources"},
    {"single-source-steps", NULL, COMMAND_ORDER, OPTION_FLAG, FIELD(single_source_steps), 0, 0,
     "take all samples of a step from one source of the mix"},
    {"seconds", "S", COMMAND_BENCH, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "stop after S seconds; default 10, or no limit with --epochs"},
    {"epochs", "N", COMMAND_BENCH, OPTION_NUMBER, FIELD(epochs), 1, UINT64_MAX,
     "stop after N epochs"},
    {"cold", NULL, COMMAND_BENCH, OPTION_FLAG, FIELD(cold), 0, 0,
     "first drop the data set from the page cache"},
    {"on-error", "raise|skip", COMMAND_BENCH, OPTION_CHOICE, FIELD(on_error),
     STOKER_ON_ERROR_RAISE, 0,
     "stop at a damaged sample, or replace and list it; default raise"},
    {"on-error", "raise|skip", COMMAND_PACK, OPTION_CHOICE, FIELD(on_error),
     STOKER_ON_ERROR_RAISE, 0,
     "stop at a damaged sample, or leave it out and list it; default raise"},
    {"quarantine", "FILE", COMMAND_BENCH, OPTION_TEXT, FIELD(quarantine), 0, 0,
     "append a line of JSON to FILE for each damaged sample"},
    {"quarantine", "FILE", COMMAND_PACK, OPTION_TEXT, FIELD(quarantine), 0, 0,
     "write the list of damaged samples to FILE, one line of JSON each"},
    {"bad-samples-max", "N", COMMAND_BENCH | COMMAND_PACK, OPTION_NUMBER, FIELD(bad_samples_max),
     1, UINT64_MAX, "stop if more than N samples are damaged; default: no limit"},
    {"bad-share-max", "SHARE", COMMAND_BENCH | COMMAND_PACK, OPTION_SHARE, FIELD(bad_share_max),
     0, 0, "stop if a larger share of samples is damaged, like 0.01; default: no limit"},
    {"index", "auto|never|require", READERS | COMMAND_ORDER | COMMAND_SAMPLE, OPTION_CHOICE,
     FIELD(index),
     STOKER_INDEX_AUTO, 0,
     "auto: use the entries of stoker.index that are up to date and scan other shards; never: scan "
     "all; require: fail if a scan is needed; default auto"},
    {"foreign-index", "auto|never", READERS | COMMAND_ORDER | COMMAND_SAMPLE, OPTION_CHOICE,
     FIELD(foreign_index),
     STOKER_FOREIGN_INDEX_AUTO, 0,
     "use index files of wds2idx (DALI) or Energon next to the shards; default auto"},
    {"out", "FILE", COMMAND_INDEX, OPTION_TEXT, FIELD(out), 0, 0,
     "path of the index; default: stoker.index next to the data, else in the cache"},
    {"checksums", NULL, COMMAND_INDEX, OPTION_FLAG, FIELD(checksums), 0, 0,
     "read all bytes; store a checksum of each member and the SHA-256 of each shard"},
    {"labels", NULL, COMMAND_INDEX, OPTION_FLAG, FIELD(labels), 0, 0,
     "store the numbers of .cls members"},
    {"seek-points", "[=BYTES]", COMMAND_INDEX, OPTION_MAYBE_BYTES, FIELD(seek_interval_bytes),
     65536, UINT64_MAX / 4,
     "store points in gz and zstd shards where decompression can start, about BYTES of "
     "decompressed data apart, so that the shards can be shuffled; default 1M"},
    {"jpeg-index", "[=MCUS]", COMMAND_INDEX | COMMAND_PACK, OPTION_MAYBE_NUMBER,
     FIELD(jpeg_index_mcus), 2, 65536,
     "read all JPEGs and store entry points of the decoder: one a row of MCUs (0.3 % of the data) "
     "or one every MCUS (4: 2 %). Crops decode faster, to the same pixels"},
    {"force", NULL, COMMAND_INDEX, OPTION_FLAG, FIELD(force), 0, 0,
     "read all headers again even if an index is up to date"},
    {"threads", "N", ORDERED | TOOLS | COMMAND_SAMPLE, OPTION_NUMBER, FIELD(threads), 1, 1024,
     "worker threads; default: the cores that affinity and cgroup allow"},
    {"cache", "DIR", ALL | COMMAND_CACHE, OPTION_TEXT, FIELD(cache), 0, 0,
     "folder on a local disk that keeps blocks of objects for all processes, or several separated "
     "by ':'; default: STOKER_CACHE_DIR, else none"},
    {"cache-bytes", "BYTES", ALL | COMMAND_CACHE, OPTION_BYTES, FIELD(cache_bytes), 1, UINT64_MAX,
     "quota of --cache from now on; default: as before, of a new folder all free space but 5 %"},
    {"memory", "BYTES", ALL, OPTION_BYTES, FIELD(memory_bytes), 1u << 20, UINT64_MAX,
     "memory budget, like 512M or 4G; default: half of the memory that the cgroup allows"},
    {"io", "uring|threads", ALL, OPTION_CHOICE, FIELD(io), STOKER_IO_URING, 0,
     "I/O backend for cold data; default: uring if the kernel supports it"},
    {"direct", "never|always", ALL, OPTION_CHOICE, FIELD(direct), STOKER_DIRECT_NEVER, 0,
     "O_DIRECT for cold data; default: by size"},
    {"read-timeout", "SECONDS", ALL, OPTION_SECONDS, FIELD(read_seconds), 0, 0,
     "give up a read, or a request to a store, after this time without data; default 30"},
    {"network-fs-threads", "N", ALL, OPTION_NUMBER, FIELD(network_fs_threads), 1, 256,
     "threads that open and list files on network file systems and FUSE; default 8"},
    {"help", NULL, UINT32_MAX, OPTION_FLAG, FIELD(help), 0, 0,
     "show this text"},

    /* Spellings of earlier versions. They work as before; the help does not list them. */
    {"mount", "filesystem", COMMAND_INFO, OPTION_ALIAS, 0, 0, 0, NULL},
    {"piece", "chunk-size", COMMAND_PREWARM, OPTION_ALIAS, 0, 0, 0, NULL},
    {"fresh", "no-clobber", COPIES, OPTION_ALIAS, 0, 0, 0, NULL},
    {"uploads", "unfinished-uploads", COMMAND_RM, OPTION_ALIAS, 0, 0, 0, NULL},
    {"older", "older-than", COMMAND_RM, OPTION_ALIAS, 0, 0, 0, NULL},
    {"at-once", "concurrency", COMMAND_BENCH_STORE, OPTION_ALIAS, 0, 0, 0, NULL},
    {"keep-unproven", "keep-unverified", COMMAND_VERIFY, OPTION_ALIAS, 0, 0, 0, NULL},
    {"stage", "staging-dir", COMMAND_PACK, OPTION_ALIAS, 0, 0, 0, NULL},
    {"window", "window-blocks", ORDERED, OPTION_ALIAS, 0, 0, 0, NULL},
    {"groups", "home-groups", ORDERED | COMMAND_PREWARM, OPTION_ALIAS, 0, 0, 0, NULL},
    {"world", "world-size", COMMAND_ORDER, OPTION_ALIAS, 0, 0, 0, NULL},
    {"worlds", "world-sizes", COMMAND_ORDER, OPTION_ALIAS, 0, 0, 0, NULL},
    {"histories", "random-runs", COMMAND_ORDER, OPTION_ALIAS, 0, 0, 0, NULL},
    {"run", "scenario", COMMAND_ORDER, OPTION_ALIAS, 0, 0, 0, NULL},
    {"repeats-apart", "repeat-distance", COMMAND_ORDER, OPTION_ALIAS, 0, 0, 0, NULL},
    {"single", "single-source-steps", COMMAND_ORDER, OPTION_ALIAS, 0, 0, 0, NULL},
    {"foreign", "foreign-index", READERS | COMMAND_ORDER | COMMAND_SAMPLE, OPTION_ALIAS, 0, 0, 0,
     NULL},
    {"access", "seek-points", COMMAND_INDEX, OPTION_ALIAS, 0, 0, 0, NULL},
    {"jpeg-rows", "jpeg-index", COMMAND_INDEX | COMMAND_PACK, OPTION_ALIAS, 0, 0, 0, NULL},
    {"far-threads", "network-fs-threads", ALL, OPTION_ALIAS, 0, 0, 0, NULL},
};
/* clang-format on */
#define OPTION_COUNT (sizeof options / sizeof options[0])
#define WORD_MAX 64 /* bytes of a value or of a compared word */

static const struct option *option_find(const struct command *command, const char *name,
                                        size_t name_bytes);
static int option_unknown(const struct command *command, const char *typed, size_t typed_bytes);
static int option_set(struct args *args, const struct option *option, const char *text);
static int choice_find(const char *words, const char *text, uint64_t low, uint64_t *value_out);
static unsigned distance(const char *a, const char *b);

/* Returns the long name of a short option, or NULL. */
static const char *short_name(const char *word)
{
    return strcmp(word, "-h") == 0   ? "help"
           : strcmp(word, "-r") == 0 ? "recursive"
           : strcmp(word, "-y") == 0 ? "yes"
           : strcmp(word, "-n") == 0 ? "dry-run"
                                     : NULL;
}

int args_parse(struct args *args, const struct command *command, int argc, char **argv)
{
    size_t paths = 0;
    bool only_paths = false;

    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (only_paths || word[0] != '-' || word[1] == 0) {
            argv[paths++] = argv[i];
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_paths = true;
            continue;
        }
        const char *name = short_name(word);
        name = name ? name : word + 1 + (word[1] == '-');
        size_t name_bytes = strcspn(name, "=");
        const struct option *option =
            word[1] == '-' || short_name(word) ? option_find(command, name, name_bytes) : NULL;
        if (!option) {
            return option_unknown(command, word, strcspn(word, "="));
        }
        const char *value = name[name_bytes] == '=' ? name + name_bytes + 1 : NULL;
        if (option->kind == OPTION_FLAG && value) {
            return term_usage(command->name, "this option takes no value", word,
                              "write it without '='");
        }
        if ((option->kind == OPTION_MAYBE_NUMBER || option->kind == OPTION_MAYBE_BYTES) && !value) {
            *(uint64_t *)(void *)((char *)args + option->field) = 1;
            continue;
        }
        if (option->kind != OPTION_FLAG && !value) {
            if (i + 1 >= argc) {
                return term_usage(command->name, "this option needs a value", word, option->help);
            }
            value = argv[++i];
        }
        int status = option_set(args, option, value);
        if (status != EXIT_FINE) {
            return status;
        }
    }
    args->paths = (const char *const *)argv;
    args->path_count = paths;
    return EXIT_FINE;
}

void args_help(FILE *out, const struct command *command)
{
    fprintf(out, "usage: stoker %s %s\n\n%s\n", command->name, command->usage, command->summary);
    if (command->more) {
        fprintf(out, "\n%s", command->more);
    }
    fprintf(out, "\nOptions\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *option = &options[i];
        if ((option->commands & command->bit) && option->kind != OPTION_ALIAS) {
            bool spaced = option->value && option->value[0] != '[';

            fprintf(out, "  --%s%s%s\n        %s\n", option->name, spaced ? " " : "",
                    option->value ? option->value : "", option->help);
        }
    }
    fprintf(out, "\nExit status: 0 fine, 1 findings in the data, 2 usage, 3 environment, "
                 "130 interrupted.\n");
}

const char *args_nearest(const char *typed, const char *const *words)
{
    const char *best = NULL;
    unsigned best_distance = 3; /* a larger distance is no typing error */

    for (; *words; words++) {
        unsigned steps = distance(typed, *words);
        if (steps < best_distance && steps < strlen(*words)) {
            best = *words;
            best_distance = steps;
        }
    }
    return best;
}

const char *args_dtype_name(uint64_t dtype)
{
    switch (dtype) {
    case STOKER_UINT8:
        return "uint8";
    case STOKER_FLOAT16:
        return "float16";
    case STOKER_BFLOAT16:
        return "bfloat16";
    default:
        return "float32";
    }
}

uint64_t args_dtype_bytes(uint64_t dtype)
{
    return dtype == STOKER_UINT8 ? 1 : dtype == STOKER_FLOAT32 ? 4 : 2;
}

const char *args_shuffle_name(uint64_t shuffle)
{
    switch (shuffle) {
    case STOKER_SHUFFLE_FULL:
        return "full";
    case STOKER_SHUFFLE_NONE:
        return "none";
    case STOKER_SHUFFLE_TWO_LEVEL:
        return "two-level";
    default:
        return "block";
    }
}

const char *args_tail_name(uint64_t tail)
{
    static const char *const names[] = {"drop", "pad", "wrap", "keep"};

    return names[tail ? tail - STOKER_TAIL_DROP : 0];
}

int args_change(struct args *args, const struct command *command, const char *settings)
{
    char value[WORD_MAX];

    for (const char *name = settings; *name;) {
        size_t bytes = strcspn(name, ","), name_bytes = strcspn(name, "=,");
        const struct option *option = option_find(command, name, name_bytes);
        int status;

        if (option && option->kind == OPTION_TEXT && name[name_bytes] == '=') {
            return option_set(args, option, name + name_bytes + 1); /* with its commas */
        }
        if (!option || name_bytes == bytes || bytes - name_bytes > sizeof value) {
            return term_usage(
                command->name, "not a setting", name,
                "--diff takes options with their values, like seed=1,window-blocks=128");
        }
        snprintf(value, sizeof value, "%.*s", (int)(bytes - name_bytes - 1), name + name_bytes + 1);
        status = option_set(args, option, value);
        if (status != EXIT_FINE) {
            return status;
        }
        name += bytes + (name[bytes] == ',');
    }
    return EXIT_FINE;
}

bool args_number(const char *text, uint64_t *value_out)
{
    return stk_parse_size(text, false, value_out);
}

bool args_size(const char *text, uint64_t *value_out)
{
    return stk_parse_size(text, true, value_out);
}

static const struct option *option_find(const struct command *command, const char *name,
                                        size_t name_bytes)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *option = &options[i];

        if ((option->commands & command->bit) && strlen(option->name) == name_bytes &&
            memcmp(option->name, name, name_bytes) == 0) {
            return option->kind == OPTION_ALIAS
                       ? option_find(command, option->value, strlen(option->value))
                       : option;
        }
    }
    return NULL;
}

/* Prints an error that suggests a similar option. Returns EXIT_USAGE. */
static int option_unknown(const struct command *command, const char *typed, size_t typed_bytes)
{
    const char *words[OPTION_COUNT + 1] = {0};
    char text[WORD_MAX], advice[160];
    const char *name = text;
    size_t count = 0;

    snprintf(text, sizeof text, "%.*s",
             (int)(typed_bytes < sizeof text ? typed_bytes : sizeof text), typed);
    name += strspn(text, "-");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if ((options[i].commands & command->bit) && options[i].kind != OPTION_ALIAS) {
            words[count++] = options[i].name;
        }
    }
    const char *nearest = args_nearest(name, words);
    if (nearest) {
        snprintf(advice, sizeof advice, "did you mean '--%s'? 'stoker help %s' lists all", nearest,
                 command->name);
    } else {
        snprintf(advice, sizeof advice,
                 "'stoker help %s' lists the options; a path that starts with "
                 "'-' must follow '--'",
                 command->name);
    }
    return term_usage(command->name, "unknown option", text, advice);
}

void args_free(struct args *args)
{
    for (size_t i = 0; i < args->filter_count; i++) {
        free((void *)(uintptr_t)args->filters[i]);
    }
    args->filter_count = 0;
}

/* Adds a filter: its sign and the pattern. */
static int add_filter(struct args *args, const struct option *option, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *filter = args->filter_count < ARGS_FILTERS_MAX ? malloc(bytes + 1) : NULL;

    if (!filter) {
        return term_usage(NULL, "too many filters", text, "give at most 256");
    }
    filter[0] = (char)option->low;
    memcpy(filter + 1, text, bytes);
    args->filters[args->filter_count++] = filter;
    return EXIT_FINE;
}

static int option_set(struct args *args, const struct option *option, const char *text)
{
    void *field = (char *)args + option->field;
    char advice[200], most[40] = "";
    bool bytes = option->kind == OPTION_BYTES || option->kind == OPTION_MAYBE_BYTES;
    uint64_t number = 0;
    double seconds = 0, share = 0;
    const char *end = NULL;
    bool is_number;

    switch ((enum option_kind)option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return EXIT_FINE;
    case OPTION_FILTER:
        return add_filter(args, option, text);
    case OPTION_TEXT:
        *(const char **)field = text;
        return EXIT_FINE;
    case OPTION_CHOICE:
        if (choice_find(option->value, text, option->low, field) == 0) {
            return EXIT_FINE;
        }
        snprintf(advice, sizeof advice, "--%s is one of %s", option->name, option->value);
        return term_usage(NULL, "invalid value", text, advice);
    case OPTION_SECONDS:
        is_number = stk_parse_double(text, &end, &seconds);
        if (is_number && *end == 0 && isfinite(seconds) && seconds > 0 && seconds < 1e9) {
            *(double *)field = seconds;
            return EXIT_FINE;
        }
        snprintf(advice, sizeof advice, "--%s takes seconds above 0, like 2.5", option->name);
        return term_usage(NULL, "not a number of seconds", text, advice);
    case OPTION_SHARE:
        is_number = stk_parse_double(text, &end, &share);
        if (is_number && *end == 0 && share > 0 && share <= 1) {
            *(double *)field = share;
            return EXIT_FINE;
        }
        snprintf(advice, sizeof advice, "--%s takes more than 0, at most 1, like 0.01",
                 option->name);
        return term_usage(NULL, "not a share", text, advice);
    case OPTION_NUMBER:
    case OPTION_MAYBE_NUMBER:
    case OPTION_BYTES:
    case OPTION_MAYBE_BYTES:
        if (stk_parse_size(text, bytes, &number) && number >= option->low &&
            number <= option->high) {
            *(uint64_t *)field = number;
            return EXIT_FINE;
        }
        if (option->high < UINT64_MAX / 4) {
            snprintf(most, sizeof most, ", at most %llu", (unsigned long long)option->high);
        }
        snprintf(advice, sizeof advice, "--%s takes %s, at least %llu%s%s", option->name,
                 bytes ? "bytes" : "a whole number", (unsigned long long)option->low, most,
                 bytes ? ", with K, M, G or T" : "");
        return term_usage(NULL, "not a number in range", text, advice);
    case OPTION_ALIAS: /* option_find returns the option of the new name */
        break;
    }
    return EXIT_USAGE;
}

/* Sets *value_out to low plus the index of `text` in "a|b|c". Returns 0, or -1 if it is not in it.
 */
static int choice_find(const char *words, const char *text, uint64_t low, uint64_t *value_out)
{
    size_t bytes = strlen(text);

    for (const char *word = words; *word; low++) {
        size_t word_bytes = strcspn(word, "|");
        if (word_bytes == bytes && memcmp(word, text, bytes) == 0) {
            *value_out = low;
            return 0;
        }
        word += word_bytes + (word[word_bytes] == '|');
    }
    return -1;
}

/* Levenshtein's distance, one row at a time. Words of more than WORD_MAX are cut. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[WORD_MAX + 1];
    size_t width = strnlen(b, WORD_MAX), height = strnlen(a, WORD_MAX);

    for (unsigned x = 0; x <= width; x++) {
        row[x] = x;
    }
    for (size_t y = 1; y <= height; y++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)y;
        for (size_t x = 1; x <= width; x++) {
            unsigned change = diagonal + (a[y - 1] != b[x - 1]);
            unsigned steps = row[x] < row[x - 1] ? row[x] + 1 : row[x - 1] + 1;
            diagonal = row[x];
            row[x] = steps < change ? steps : change;
        }
    }
    return row[width];
}

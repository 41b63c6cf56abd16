/* Options of every command in one table; parsing by hand, because getopt_long neither names the
 * nearest option nor knows units. */
#include "programs/cli/args.h"

#include "programs/cli/terminal.h"

#include <errno.h>
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
    OPTION_MAYBE_NUMBER, /* this and what follows: only after '='; without it 1 */
    OPTION_MAYBE_BYTES
};

struct option {
    const char *name;
    const char *value; /* how the help calls the value; choices: "a|b|c", counted from `low` */
    uint32_t commands;
    uint32_t kind;
    size_t field; /* offset in struct args */
    uint64_t low, high;
    const char *help;
};

#define FIELD(name) offsetof(struct args, name)
#define READERS (COMMAND_LS | COMMAND_CAT | COMMAND_INFO | COMMAND_BENCH)
#define TOOLS (COMMAND_INDEX | COMMAND_PACK | COMMAND_VERIFY | COMMAND_DIFF)
#define COPIES (COMMAND_CP | COMMAND_SYNC)
#define FILES (COPIES | COMMAND_RM | COMMAND_STAT)
#define ALL                                                                                        \
    (READERS | TOOLS | COMMAND_ORDER | COMMAND_SAMPLE | FILES | COMMAND_BENCH_STORE |              \
     COMMAND_PREWARM)
#define STREAM (COMMAND_INFO | COMMAND_BENCH)
#define ORDERED (STREAM | COMMAND_ORDER)

/* clang-format off */
static const struct option options[] = {
    {"mount", NULL, COMMAND_INFO, OPTION_FLAG, FIELD(mount), 0, 0,
     "only what PATH lies on: no data set is opened"},
    {"json", NULL, COMMAND_LS | ORDERED | TOOLS | COMMAND_SAMPLE | COMMAND_CREDS | FILES |
     COMMAND_BENCH_STORE | COMMAND_PREWARM, OPTION_FLAG, FIELD(json), 0, 0,
     "JSON, one object a line"},
    {"check", NULL, COMMAND_PREWARM, OPTION_FLAG, FIELD(check_only), 0, 0,
     "read nothing: say what is cold"},
    {"touch", NULL, COMMAND_PREWARM, OPTION_FLAG, FIELD(touch), 0, 0,
     "one byte of each file, for archives that bring whole files"},
    {"workers", "N", COMMAND_PREWARM, OPTION_NUMBER, FIELD(workers), 1, 64,
     "reads at once; default 16"},
    {"piece", "BYTES", COMMAND_PREWARM, OPTION_BYTES, FIELD(piece_bytes), 64u << 10, 64u << 20,
     "of a file at a time; default 4M"},
    {"seconds", "S", COMMAND_PREWARM, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "stop after S seconds; the same command goes on; default none"},
    {"files", NULL, COMMAND_LS, OPTION_FLAG, FIELD(files), 0, 0,
     "files, objects and folders instead of samples"},
    {"recursive", NULL, COMMAND_LS | COMMAND_CP | COMMAND_RM, OPTION_FLAG, FIELD(recursive), 0, 0,
     "folders with all that lies below them (-r); of ls with --files"},
    {"update", NULL, COMMAND_CP, OPTION_FLAG, FIELD(update), 0, 0,
     "leave out what is there in the same size and no older"},
    {"fresh", NULL, COPIES, OPTION_FLAG, FIELD(fresh), 0, 0,
     "never replace a file or an object: an error where one is there"},
    {"delete", NULL, COMMAND_SYNC, OPTION_FLAG, FIELD(remove_extra), 0, 0,
     "once all is copied, remove what the source does not have"},
    {"uploads", NULL, COMMAND_RM, OPTION_FLAG, FIELD(leftovers), 0, 0,
     "not objects but uploads below PATH that nobody ended"},
    {"older", "SECONDS", COMMAND_RM, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "with --uploads: that are older; default a day"},
    {"yes", NULL, COMMAND_RM, OPTION_FLAG, FIELD(yes), 0, 0, "do not ask (-y)"},
    {"workers", "N", COPIES | COMMAND_RM, OPTION_NUMBER, FIELD(workers), 1, 256,
     "files, or parts of large ones, at once; default 128, between local folders 2 a core"},
    {"part-size", "BYTES", COPIES, OPTION_BYTES, FIELD(part_bytes), 5u << 20, 1u << 30,
     "files above it are copied by parts; default 8M"},
    {"check", "crc64nvme|crc32c|sha256|md5", COPIES, OPTION_CHOICE, FIELD(check),
     STOKER_CHECK_CRC64NVME, 0,
     "how the store checks what arrives; default: crc64nvme at Amazon, elsewhere the signature's "
     "SHA-256"},
    {"storage-class", "NAME", COPIES, OPTION_TEXT, FIELD(storage_class), 0, 0,
     "of new objects; default: the bucket's"},
    {"sse", "AES256|aws:kms", COPIES, OPTION_TEXT, FIELD(encryption), 0, 0,
     "encryption of new objects by the store; default: the bucket's"},
    {"sse-kms-key", "ID", COPIES, OPTION_TEXT, FIELD(encryption_key), 0, 0,
     "the key of --sse aws:kms"},
    {"sse-kms-context", "JSON", COPIES, OPTION_TEXT, FIELD(encryption_context), 0, 0,
     "the encryption context of --sse aws:kms: {\"name\": \"text\"}"},
    {"sizes", "N,N", COMMAND_BENCH_STORE, OPTION_TEXT, FIELD(sizes), 0, 0,
     "of the ranges; those above 8M are several requests each; default 64K,1M,8M"},
    {"at-once", "N,N", COMMAND_BENCH_STORE, OPTION_TEXT, FIELD(at_once), 0, 0,
     "ranges in flight; default 1,8,32,64"},
    {"seconds", "S", COMMAND_BENCH_STORE, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "for all reading together; each size and number is read once at least; default 20"},
    {"bytes", "BYTES", COMMAND_BENCH_STORE, OPTION_BYTES, FIELD(bytes_max), 1, UINT64_MAX / 4,
     "read no more, but for the ranges in flight then; default 4G"},
    {"write", NULL, COMMAND_BENCH_STORE, OPTION_FLAG, FIELD(write), 0, 0,
     "write some 70 MB below URL first, measure that too, read it, and remove it"},
    {"plot", "FILE", COMMAND_BENCH_STORE, OPTION_TEXT, FIELD(plot), 0, 0,
     "charts and the table as a page (.html), or the charts (.svg, .png)"},
    {"seed", "N", COMMAND_BENCH_STORE, OPTION_NUMBER, FIELD(seed), 0, UINT64_MAX - 1,
     "of the places that are read; default 0"},
    {"shards", NULL, COMMAND_LS, OPTION_FLAG, FIELD(shards), 0, 0,
     "a line for each shard (of a folder: each class folder) instead of each sample"},
    {"limit", "N", COMMAND_LS | COMMAND_VERIFY | COMMAND_DIFF, OPTION_NUMBER, FIELD(limit), 1,
     UINT64_MAX, "print at most N lines"},
    {"deep", NULL, COMMAND_VERIFY, OPTION_FLAG, FIELD(deep), 0, 0,
     "decode every pixel; any warning of a picture's library counts"},
    {"repair", NULL, COMMAND_VERIFY, OPTION_FLAG, FIELD(repair), 0, 0,
     "write damaged shards anew without their damaged samples; keep SHARD.original"},
    {"keep-unproven", NULL, COMMAND_VERIFY, OPTION_FLAG, FIELD(keep_unproven), 0, 0,
     "with --repair: keep samples of which only a wrong checksum of the packing says ill"},
    {"reread", NULL, COMMAND_DIFF, OPTION_FLAG, FIELD(reread), 0, 0,
     "read all bytes, whatever checksums an index has"},
    {"batch", "N", STREAM | COMMAND_ORDER, OPTION_NUMBER, FIELD(batch), 1, 1u << 20,
     "samples a batch; default 256"},
    {"image", "PIXELS", STREAM, OPTION_NUMBER, FIELD(image), 1, 1u << 14,
     "decode to PIXELS x PIXELS, as training does: RandomResizedCrop, flip; default 224"},
    {"dtype", "uint8|float32|float16|bfloat16", STREAM, OPTION_CHOICE, FIELD(dtype),
     STOKER_UINT8, 0,
     "of pixels; all but uint8 are normalised; default float32"},
    {"layout", "nchw|nhwc", COMMAND_BENCH, OPTION_CHOICE, FIELD(layout), STOKER_NCHW, 0,
     "of pixels; default nchw"},
    {"raw", NULL, COMMAND_BENCH, OPTION_FLAG, FIELD(raw), 0, 0,
     "bytes of the members, nothing is decoded"},
    {"fields", "EXT,EXT", COMMAND_BENCH, OPTION_TEXT, FIELD(fields), 0, 0,
     "with --raw: members to read (jpg;png,cls: jpg or png, and cls); default: those of the first "
     "sample"},
    {"shard-size", "BYTES", COMMAND_PACK, OPTION_BYTES, FIELD(shard_bytes), 4096, UINT64_MAX / 4,
     "no shard is larger, unless one sample is; default 256M"},
    {"stage", "DIR", COMMAND_PACK, OPTION_TEXT, FIELD(stage), 0, 0,
     "where it is packed before it is sent to a URL; default: the cache"},
    {"pattern", "NAME", COMMAND_PACK, OPTION_TEXT, FIELD(pattern), 0, 0,
     "names of the shards; default shard-%06d.tar"},
    {"shuffle", "SEED", COMMAND_PACK, OPTION_TEXT, FIELD(shuffle_seed), 0, 0,
     "shuffle the samples by this number; default: the order of the source"},
    {"short-side", "N", COMMAND_PACK, OPTION_NUMBER, FIELD(short_side), 1, 1u << 16,
     "make JPEGs smaller whose short side is above N pixels; others are copied"},
    {"quality", "N", COMMAND_PACK, OPTION_NUMBER, FIELD(quality), 1, 100,
     "of JPEGs made smaller; default 90"},
    {"shuffle", "block|full|none|two-level", ORDERED, OPTION_CHOICE, FIELD(shuffle),
     STOKER_SHUFFLE_BLOCK, 0,
     "the order; two-level: shards, then the samples of each; default block"},
    {"window", "N", ORDERED, OPTION_NUMBER, FIELD(window), 1, UINT32_MAX,
     "blocks that are mixed with each other; default 64"},
    {"groups", "N", ORDERED, OPTION_NUMBER, FIELD(groups), 1, UINT32_MAX,
     "home groups of blocks: nodes meet the same blocks every epoch if they divide a step and are "
     "a multiple of the nodes, or far above them; default 1"},
    {"seed", "N", COMMAND_BENCH | COMMAND_ORDER, OPTION_NUMBER, FIELD(seed), 0, UINT64_MAX,
     "of the order and of augmentation; default 0"},
    {"world", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(world), 1, UINT32_MAX,
     "ranks; a step is N batches; default 1"},
    {"nodes", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(nodes), 1, UINT32_MAX,
     "machines that the ranks are spread over, each with a cache; default 1"},
    {"tail", "drop|pad|wrap|keep", COMMAND_ORDER, OPTION_CHOICE, FIELD(tail), STOKER_TAIL_DROP, 0,
     "what becomes of the samples behind an epoch's last whole step; default drop"},
    {"epoch", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(epoch), 0, UINT64_MAX,
     "the epoch of --at and --simulate, the first of --find; default 0"},
    {"epochs", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(epochs), 1, UINT64_MAX,
     "epochs that --find, --diff and --verify look at; default 3, 3 and 2"},
    {"at", "STEP", COMMAND_ORDER, OPTION_TEXT, FIELD(at), 0, 0,
     "list the samples of a step: which were in the batch where the loss jumped?"},
    {"rank", "N", COMMAND_ORDER, OPTION_TEXT, FIELD(rank), 0, 0,
     "with --at: only those of this rank"},
    {"subset", "PREDICATE", COMMAND_SAMPLE | COMMAND_ORDER, OPTION_TEXT, FIELD(subset), 0, 0,
     "only samples for which it holds: 'label in (3, 7) and size > 10_000'"},
    {"weights", "COLUMN", COMMAND_SAMPLE | COMMAND_ORDER, OPTION_TEXT, FIELD(weights), 0, 0,
     "drawn with replacement, as often as this column says"},
    {"balance", "COLUMN", COMMAND_SAMPLE | COMMAND_ORDER, OPTION_TEXT, FIELD(balance), 0, 0,
     "each value of this column as often as any other"},
    {"replacement", NULL, COMMAND_ORDER, OPTION_FLAG, FIELD(replacement), 0, 0,
     "drawn with replacement, all alike"},
    {"curriculum", "STAGES", COMMAND_ORDER, OPTION_TEXT, FIELD(curriculum), 0, 0,
     "from each position of the run on other samples: '0:size < 9_000;300000:' are small ones, "
     "then all"},
    {"repeats", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(repeats), 1, 65536,
     "each sample N times; default 1"},
    {"repeats-apart", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(repeats_apart), 1, 1u << 24,
     "positions from copy to copy; default 1: in a row"},
    {"epoch-samples", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(epoch_samples), 1,
     UINT64_C(1) << 56,
     "samples of an epoch of chosen samples; default: one pass, with its repeats"},
    {"find", "KEY", COMMAND_ORDER, OPTION_TEXT, FIELD(find), 0, 0,
     "list the steps where a sample comes (without PATH: its number)"},
    {"diff", "SETTINGS", COMMAND_ORDER, OPTION_TEXT, FIELD(diff), 0, 0,
     "where another set-up first differs: seed=1,window=128,world=16 ..."},
    {"verify", NULL, COMMAND_ORDER, OPTION_FLAG, FIELD(verify), 0, 0,
     "prove by enumeration that each sample comes exactly once"},
    {"worlds", "N,N", COMMAND_ORDER, OPTION_TEXT, FIELD(worlds), 0, 0,
     "world sizes that --verify proves; default: up to 8 that divide a step"},
    {"histories", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(histories), 1, UINT32_MAX,
     "random runs of --verify, with resizes, other batch sizes and kills; default 20"},
    {"run", "RUN", COMMAND_ORDER, OPTION_TEXT, FIELD(run), 0, 0,
     "with --verify: prove this run, of stretches RANKSxBATCH:STEPS-LOST: 8x32:500-20,4x64 is 500 "
     "steps of 8 ranks, killed 20 behind the state that 4 ranks went on from"},
    {"simulate", NULL, COMMAND_ORDER, OPTION_FLAG, FIELD(simulate), 0, 0,
     "go through an epoch as each rank of each node does: what nodes have open, of any data set"},
    {"samples", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(samples), 1, UINT64_C(1) << 56,
     "without PATH: of a data set that is only planned"},
    {"block-samples", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(block_samples), 1,
     UINT64_C(1) << 56, "samples a block; default: the data set's"},
    {"mix", "N,N", COMMAND_ORDER, OPTION_TEXT, FIELD(mix), 0, 0,
     "each PATH is a source with a weight, 3,2,1; 3,2,1/5000:0,1,1: others from position 5000 on"},
    {"mix-end", "repeat|stop|renormalise", COMMAND_ORDER, OPTION_CHOICE, FIELD(mix_end),
     STOKER_MIX_REPEAT, 0, "what comes when a source is through; default repeat"},
    {"mix-epoch", "N", COMMAND_ORDER, OPTION_NUMBER, FIELD(mix_epoch), 1, UINT64_C(1) << 56,
     "samples of an epoch of a mix that repeats; default: as many as all sources have"},
    {"single", NULL, COMMAND_ORDER, OPTION_FLAG, FIELD(single), 0, 0,
     "each step of a mix is of one source"},
    {"seconds", "S", COMMAND_BENCH, OPTION_SECONDS, FIELD(seconds), 0, 0,
     "stop after S seconds; default 10, or none where --epochs is given"},
    {"epochs", "N", COMMAND_BENCH, OPTION_NUMBER, FIELD(epochs), 1, UINT64_MAX,
     "stop after N epochs"},
    {"cold", NULL, COMMAND_BENCH, OPTION_FLAG, FIELD(cold), 0, 0,
     "drop the data set's pages from the page cache first"},
    {"on-error", "raise|skip", COMMAND_BENCH, OPTION_CHOICE, FIELD(on_error),
     STOKER_ON_ERROR_RAISE, 0,
     "a damaged sample stops the run, or is replaced and listed; default raise"},
    {"on-error", "raise|skip", COMMAND_PACK, OPTION_CHOICE, FIELD(on_error),
     STOKER_ON_ERROR_RAISE, 0,
     "a damaged sample stops the work, or is left out and listed; default raise"},
    {"quarantine", "FILE", COMMAND_BENCH, OPTION_TEXT, FIELD(quarantine), 0, 0,
     "a line of JSON for each damaged sample is added to FILE"},
    {"quarantine", "FILE", COMMAND_PACK, OPTION_TEXT, FIELD(quarantine), 0, 0,
     "FILE becomes the list of the damaged samples, a line of JSON each"},
    {"bad-samples-max", "N", COMMAND_BENCH | COMMAND_PACK, OPTION_NUMBER, FIELD(bad_samples_max),
     1, UINT64_MAX, "stop when more than N samples are damaged; default: no limit"},
    {"bad-share-max", "SHARE", COMMAND_BENCH | COMMAND_PACK, OPTION_SHARE, FIELD(bad_share_max),
     0, 0, "stop when a larger share is damaged, like 0.01; default: no limit"},
    {"index", "auto|never|require", READERS | COMMAND_ORDER | COMMAND_SAMPLE, OPTION_CHOICE,
     FIELD(index),
     STOKER_INDEX_AUTO, 0,
     "use what of stoker.index is fresh, none of it, or nothing else; default auto"},
    {"foreign", "auto|never", READERS | COMMAND_ORDER | COMMAND_SAMPLE, OPTION_CHOICE,
     FIELD(foreign),
     STOKER_FOREIGN_INDEX_AUTO, 0,
     "use indexes that wds2idx (DALI) or Energon left beside shards; default auto"},
    {"out", "FILE", COMMAND_INDEX, OPTION_TEXT, FIELD(out), 0, 0,
     "where the index goes; default: stoker.index beside the data, else the cache"},
    {"checksums", NULL, COMMAND_INDEX, OPTION_FLAG, FIELD(checksums), 0, 0,
     "read all bytes, and keep a checksum of each member, and SHA-256 of each shard"},
    {"labels", NULL, COMMAND_INDEX, OPTION_FLAG, FIELD(labels), 0, 0,
     "keep the numbers in .cls members"},
    {"access", "[=BYTES]", COMMAND_INDEX, OPTION_MAYBE_BYTES, FIELD(access_bytes), 65536,
     UINT64_MAX / 4,
     "places in gz and zstd shards where unpacking can begin, about BYTES of unpacked data apart, "
     "so that they can be shuffled; default 1M"},
    {"jpeg-rows", "[=MCUS]", COMMAND_INDEX | COMMAND_PACK, OPTION_MAYBE_NUMBER, FIELD(jpeg_rows), 2,
     65536,
     "read all JPEGs, and keep where the decoder can begin in them, at each row of MCUs (0.3 % of "
     "the data) or each MCUS of them (4: 2 %): crops decode faster, to the same pixels"},
    {"force", NULL, COMMAND_INDEX, OPTION_FLAG, FIELD(force), 0, 0,
     "read all headers again, whatever an index says"},
    {"threads", "N", ORDERED | TOOLS | COMMAND_SAMPLE, OPTION_NUMBER, FIELD(threads), 1, 1024,
     "threads that decode or write; default: the cores granted"},
    {"memory", "BYTES", ALL, OPTION_BYTES, FIELD(memory_bytes), 1u << 20, UINT64_MAX,
     "the budget, like 512M or 4G; default: half of what is granted"},
    {"io", "uring|threads", ALL, OPTION_CHOICE, FIELD(io), STOKER_IO_URING, 0,
     "how cold data is read; default: found out"},
    {"direct", "never|always", ALL, OPTION_CHOICE, FIELD(direct), STOKER_DIRECT_NEVER, 0,
     "O_DIRECT for cold data; default: by size"},
    {"read-timeout", "SECONDS", ALL, OPTION_SECONDS, FIELD(read_seconds), 0, 0,
     "a read, or a request of a store, for which nothing comes for so long is given up; default "
     "30"},
    {"far-threads", "N", ALL, OPTION_NUMBER, FIELD(far_threads), 1, 256,
     "files that are opened and listed at once on network file systems and FUSE; default 8"},
    {"help", NULL, ALL, OPTION_FLAG, FIELD(help), 0, 0, "this text"},
};
/* clang-format on */
#define OPTION_COUNT (sizeof options / sizeof options[0])
#define WORD_MAX 64 /* bytes of a sampling_args or of a word that is compared */

static const struct option *option_find(const struct command *command, const char *name,
                                        size_t name_bytes);
static int option_unknown(const struct command *command, const char *typed, size_t typed_bytes);
static int option_set(struct args *args, const struct option *option, const char *text);
static int choice_find(const char *words, const char *text, uint64_t low, uint64_t *value_out);
static bool number_parse(const char *text, bool with_unit, uint64_t *value_out);
static unsigned distance(const char *a, const char *b);

/* The option that a letter stands for, or NULL. */
static const char *short_name(const char *word)
{
    return strcmp(word, "-h") == 0   ? "help"
           : strcmp(word, "-r") == 0 ? "recursive"
           : strcmp(word, "-y") == 0 ? "yes"
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
        name = name ? name : word + strspn(word, "-");
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
        if (option->kind >= OPTION_MAYBE_NUMBER && !value) {
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
        if (option->commands & command->bit) {
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
    unsigned best_distance = 3; /* further away it is no slip of the finger */

    for (; *words; words++) {
        unsigned steps = distance(typed, *words);
        if (steps < best_distance && steps < strlen(*words)) {
            best = *words;
            best_distance = steps;
        }
    }
    return best;
}

/* 0 stays 0, and nothing else becomes it. */
static uint32_t milliseconds(double seconds)
{
    double ms = seconds * 1000;

    return ms >= UINT32_MAX ? UINT32_MAX : (uint32_t)ms + (ms > 0 && ms < 1);
}

int args_open_engine(const struct args *args, struct stoker_engine **engine_out)
{
    struct stoker_error error = {0};
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine,
        .memory_bytes_max = args->memory_bytes,
        .threads = (uint32_t)args->threads,
        .io_backend = (uint32_t)args->io,
        .direct = (uint32_t)args->direct,
        .read_timeout_ms = milliseconds(args->read_seconds),
        .network_fs_threads_max = (uint32_t)args->far_threads,
    };
    int status = stoker_engine_open(engine_out, &engine, &error);

    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

int args_open(const struct args *args, struct stoker_engine **engine_out,
              struct stoker_dataset **dataset_out)
{
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset_options dataset_options = {
        .struct_size = sizeof dataset_options,
        .urls = args->paths,
        .url_count = args->path_count,
        .index = (uint32_t)args->index,
        .foreign_index = (uint32_t)args->foreign,
        .on_error = args->rescue ? STOKER_ON_ERROR_SKIP : STOKER_ON_ERROR_RAISE,
    };
    int exit_status = args_open_engine(args, &engine);

    if (exit_status != EXIT_FINE) {
        return exit_status;
    }
    int status = stoker_dataset_open(dataset_out, engine, &dataset_options, &error);
    if (status < 0) {
        stoker_engine_close(engine);
        return term_error(status, &error);
    }
    *engine_out = engine;
    return EXIT_FINE;
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
            return option_set(args, option, name + name_bytes + 1); /* commas and all */
        }
        if (!option || name_bytes == bytes || bytes - name_bytes > sizeof value) {
            return term_usage(command->name, "not a setting", name,
                              "settings are like seed=1,window=128: options with their values");
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
    return number_parse(text, false, value_out);
}

bool args_size(const char *text, uint64_t *value_out)
{
    return number_parse(text, true, value_out);
}

static const struct option *option_find(const struct command *command, const char *name,
                                        size_t name_bytes)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if ((options[i].commands & command->bit) && strlen(options[i].name) == name_bytes &&
            memcmp(options[i].name, name, name_bytes) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

/* Says which option was likely meant, or which command knows the one that was typed. */
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
        if (options[i].commands & command->bit) {
            words[count++] = options[i].name;
        }
    }
    const char *nearest = args_nearest(name, words);
    if (nearest) {
        snprintf(advice, sizeof advice, "did you mean '--%s'? 'stoker help %s' lists all", nearest,
                 command->name);
    } else {
        snprintf(advice, sizeof advice,
                 "'stoker help %s' lists the options; a path that begins with "
                 "'-' goes after '--'",
                 command->name);
    }
    return term_usage(command->name, "unknown option", text, advice);
}

static int option_set(struct args *args, const struct option *option, const char *text)
{
    void *field = (char *)args + option->field;
    char advice[200], most[40] = "";
    bool bytes = option->kind == OPTION_BYTES || option->kind == OPTION_MAYBE_BYTES;
    uint64_t number = 0;
    double seconds = 0, share = 0;
    char *end = NULL;

    switch ((enum option_kind)option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return EXIT_FINE;
    case OPTION_TEXT:
        *(const char **)field = text;
        return EXIT_FINE;
    case OPTION_CHOICE:
        if (choice_find(option->value, text, option->low, field) == 0) {
            return EXIT_FINE;
        }
        snprintf(advice, sizeof advice, "--%s is one of %s", option->name, option->value);
        return term_usage(NULL, "no such choice", text, advice);
    case OPTION_SECONDS:
        seconds = strtod(text, &end);
        if (end != text && *end == 0 && isfinite(seconds) && seconds > 0 && seconds < 1e9) {
            *(double *)field = seconds;
            return EXIT_FINE;
        }
        snprintf(advice, sizeof advice, "--%s takes seconds above 0, like 2.5", option->name);
        return term_usage(NULL, "not a number of seconds", text, advice);
    case OPTION_SHARE:
        share = strtod(text, &end);
        if (end != text && *end == 0 && share > 0 && share <= 1) {
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
        if (number_parse(text, bytes, &number) && number >= option->low && number <= option->high) {
            *(uint64_t *)field = number;
            return EXIT_FINE;
        }
        if (option->high < UINT64_MAX) {
            snprintf(most, sizeof most, ", at most %llu", (unsigned long long)option->high);
        }
        snprintf(advice, sizeof advice, "--%s takes %s, at least %llu%s%s", option->name,
                 bytes ? "bytes" : "a whole number", (unsigned long long)option->low, most,
                 bytes ? ", with K, M, G or T" : "");
        return term_usage(NULL, "not a number that fits", text, advice);
    }
    return EXIT_USAGE;
}

/* The place of `text` in "a|b|c", counted from low. */
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

/* Digits, and for bytes a unit of 1,024: K, KB, KiB ... T. */
static bool number_parse(const char *text, bool with_unit, uint64_t *value_out)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    unsigned shift = 0;

    if (text[0] < '0' || text[0] > '9') {
        return false; /* strtoull would take a sign and make it huge */
    }
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno) {
        return false;
    }
    if (with_unit && *end) {
        char letter = (char)(*end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end);
        const char *unit = strchr(units, letter);
        if (!unit) {
            return false;
        }
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
        if (strcmp(end, "B") == 0 || strcmp(end, "iB") == 0) {
            end += strlen(end);
        }
    }
    if (*end || value > UINT64_MAX >> shift) {
        return false;
    }
    *value_out = value << shift;
    return true;
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

/* stoker cache: shows, verifies and changes a node cache: blocks of objects on local disks. */
#include "programs/cli/args.h"
#include "programs/cli/command.h"
#include "programs/cli/terminal.h"

#include <inttypes.h>
#include <string.h>

static int run(struct args *args);

const struct command command_cache = {
    .name = "cache",
    .bit = COMMAND_CACHE,
    .usage = "ls|stat|verify|drop|pin|unpin|gc [options] [URL]",
    .summary = "Show, verify and change a node cache",
    .more = "The cache is that of --cache DIR, else of STOKER_CACHE_DIR. URL selects the objects\n"
            "whose URLs begin with it; default: all.\n\n"
            "  ls             cached objects, and how much of them is cached\n"
            "  stat           folders: used bytes, quota, blocks, state of the disk\n"
            "  verify         reads each block, and drops damaged ones\n"
            "  drop           removes the blocks of the objects (--all: of all objects)\n"
            "  pin, unpin     pinned blocks are never evicted\n"
            "  gc             frees what killed processes left, and what is over the quota\n\n"
            "Exit status 1: verify found damaged blocks.\n",
    .run = run,
};

struct totals {
    uint64_t objects, blocks, bytes, damaged;
};

static void print_object(const struct args *args, const struct stoker_cache_object *object)
{
    char cached[TERM_NUMBER_BYTES], all[TERM_NUMBER_BYTES];

    if (args->json) {
        json_open(NULL, '{');
        json_str("url", object->url);
        json_str("etag", object->etag);
        json_u64("object_bytes", object->object_bytes);
        json_u64("bytes", object->bytes);
        json_u64("blocks", object->blocks);
        json_u64("blocks_pinned", object->blocks_pinned);
        json_u64("blocks_damaged", object->blocks_damaged);
        json_close('}');
        return;
    }
    printf("%10s of %10s  ", term_bytes(cached, object->bytes),
           term_bytes(all, object->object_bytes));
    term_text(object->url[0] ? object->url : "(damaged)");
    printf("  ");
    term_text(object->etag);
    printf("%s%s\n", object->blocks_pinned ? "  pinned" : "",
           object->blocks_damaged ? "  DAMAGED" : "");
}

static int run_report(const struct args *args, struct stoker_cache *cache, uint32_t action)
{
    struct stoker_cache_object object = {.struct_size = sizeof object};
    struct stoker_cache_report *report = NULL;
    struct stoker_error error = {0};
    struct totals totals = {0};
    char count[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES];
    const char *prefix = args->path_count > 0 ? args->paths[0] : "";
    int status = stoker_cache_report_open(&report, cache, action, prefix, &error);

    if (status < 0) {
        return term_error(status, &error);
    }
    while (stoker_cache_report_next(report, &object) == 1) {
        if (args->limit == 0 || totals.objects < args->limit) {
            print_object(args, &object);
        }
        totals.objects++;
        totals.blocks += object.blocks;
        totals.bytes += object.bytes;
        totals.damaged += object.blocks_damaged;
    }
    stoker_cache_report_close(report);
    if (!args->json) {
        printf("%s objects, %s%s\n", term_count(count, totals.objects),
               term_bytes(bytes, totals.bytes), action == STOKER_CACHE_DROP ? " dropped" : "");
    }
    if (!args->json && totals.damaged > 0) {
        printf("%s damaged blocks were dropped\n", term_count(count, totals.damaged));
    }
    return totals.damaged > 0 ? EXIT_FINDINGS : EXIT_FINE;
}

static void print_folder(const struct args *args, const struct stoker_cache_folder *folder)
{
    char used[TERM_NUMBER_BYTES], all[TERM_NUMBER_BYTES], block[TERM_NUMBER_BYTES];

    if (args->json) {
        json_open(NULL, '{');
        json_str("path", folder->path);
        json_u64("bytes_used", folder->bytes_used);
        json_u64("bytes_max", folder->bytes_max);
        json_u64("blocks", folder->blocks);
        json_u64("blocks_filling", folder->blocks_filling);
        json_u64("blocks_pinned", folder->blocks_pinned);
        json_u64("block_bytes", folder->block_bytes);
        json_close('}');
        return;
    }
    term_text(folder->path);
    printf(": %s of %s, %" PRIu64 " blocks of up to %s, %" PRIu64 " being filled, %" PRIu64
           " pinned\n",
           term_bytes(used, folder->bytes_used), term_bytes(all, folder->bytes_max), folder->blocks,
           term_bytes(block, folder->block_bytes), folder->blocks_filling, folder->blocks_pinned);
}

static int run_stat(const struct args *args, struct stoker_cache *cache)
{
    struct stoker_cache_folder folder = {.struct_size = sizeof folder};

    for (size_t i = 0; stoker_cache_folder(cache, i, &folder) == 1; i++) {
        print_folder(args, &folder);
    }
    return EXIT_FINE;
}

static int run_gc(const struct args *args, struct stoker_cache *cache)
{
    struct stoker_error error = {0};
    int64_t freed = stoker_cache_collect(cache, &error);

    if (freed < 0) {
        return term_error((int)freed, &error);
    }
    if (args->json) {
        json_open(NULL, '{');
        json_u64("blocks_freed", (uint64_t)freed);
        json_close('}');
    } else {
        printf("%" PRId64 " blocks freed\n", freed);
    }
    return EXIT_FINE;
}

static const struct action {
    const char *name;
    uint32_t action;
    int (*run)(const struct args *args, struct stoker_cache *cache); /* NULL: a report */
} actions[] = {{"ls", STOKER_CACHE_LIST, NULL},
               {"stat", 0, run_stat},
               {"verify", STOKER_CACHE_VERIFY, NULL},
               {"drop", STOKER_CACHE_DROP, NULL},
               {"pin", STOKER_CACHE_PIN, NULL},
               {"unpin", STOKER_CACHE_UNPIN, NULL},
               {"gc", 0, run_gc}};

static int check_paths(const struct args *args, const struct action *action)
{
    if (args->path_count > (action->run ? 0 : 1)) {
        return term_usage("cache", action->run ? "no URL is needed" : "one URL is enough",
                          action->name, "'stoker help cache' shows what follows");
    }
    if (action->action == STOKER_CACHE_DROP && args->path_count == 0 && !args->all) {
        return term_usage("cache", "a URL is needed", "drop", "name one, or use --all");
    }
    return EXIT_FINE;
}

static int run(struct args *args)
{
    const struct action *action = NULL;
    struct stoker_cache *cache = NULL;
    int status;

    if (args->path_count == 0) {
        return command_no_action(&command_cache);
    }
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(actions[i].name, args->paths[0]) == 0) {
            action = &actions[i];
        }
    }
    if (!action) {
        return term_usage("cache", "unknown action", args->paths[0],
                          "use ls, stat, verify, drop, pin, unpin or gc");
    }
    args->paths++;
    args->path_count--;
    status = check_paths(args, action);
    status = status == EXIT_FINE ? command_open_cache(args, true, &cache) : status;
    if (status == EXIT_FINE) {
        status = action->run ? action->run(args, cache) : run_report(args, cache, action->action);
    }
    stoker_cache_close(cache);
    return status;
}

/* stoker presign: signs URLs of objects for others. */
#include "programs/cli/args.h"

#include "programs/cli/command.h"
#include "programs/cli/terminal.h"

#include <time.h>

static int run(struct args *args);

const struct command command_presign = {
    .name = "presign",
    .bit = COMMAND_PRESIGN,
    .usage = "[options] URL...",
    .summary = "Sign URLs of S3 objects; requests with them need no credentials",
    .more = "Prints one URL a line. It is a secret until it expires. Signing needs no permission;\n"
            "whether the credentials may read the object shows when the URL is used.\n",
    .run = run,
};

static void print(const char *path, const char *url, uint64_t until_ns, bool json)
{
    time_t seconds = (time_t)(until_ns / 1000000000u);
    char until[32] = "";
    struct tm parts;

    if (!json) {
        puts(url);
        return;
    }
    if (gmtime_r(&seconds, &parts)) {
        strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    json_open(NULL, '{');
    json_str("path", path);
    json_str("url", url);
    json_str("expires", until);
    json_close('}');
}

static int run(struct args *args)
{
    struct stoker_presign_options options = {
        .struct_size = sizeof options,
        .method = args->put ? STOKER_PRESIGN_PUT : STOKER_PRESIGN_GET,
        .expires_s = args->seconds < 1e9 ? (uint32_t)args->seconds : UINT32_MAX};
    struct stoker_engine *engine = NULL;
    int status;

    if (args->path_count == 0) {
        return command_no_path(&command_presign);
    }
    if (args->seconds > 0 && options.expires_s == 0) {
        options.expires_s = 1;
    }
    status = command_open_engine(args, &engine);
    for (size_t i = 0; i < args->path_count && status == EXIT_FINE && !term_closed(); i++) {
        struct stoker_error error = {0};
        uint64_t until_ns = 0;
        char *url = NULL;
        int signed_status =
            stoker_presign(engine, args->paths[i], &options, &url, &until_ns, &error);

        if (signed_status < 0) {
            status = term_error(signed_status, &error);
        } else {
            print(args->paths[i], url, until_ns, args->json);
        }
        stoker_paths_free(url);
    }
    stoker_engine_close(engine);
    return status;
}

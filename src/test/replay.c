/* Runs a fuzz target over files, without a fuzzer: `target_fuzz FILE|FOLDER ...`. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int replayed;

static int run_file(const char *path)
{
    FILE    *file = fopen(path, "rb");
    size_t   capacity = 1u << 24;
    uint8_t *data = malloc(capacity);
    size_t   bytes = 0;
    uint8_t *exact;

    if (file && data) {
        bytes = fread(data, 1, capacity, file);
    }
    if (file) {
        fclose(file);
    }
    /* An exact block, so that the sanitizer sees one byte past the end. */
    exact = malloc(bytes ? bytes : 1);
    for (size_t i = 0; exact && i < bytes; i++) {
        exact[i] = data[i];
    }
    LLVMFuzzerTestOneInput(exact, bytes);
    replayed++;
    free(exact);
    free(data);
    return 0;
}

static int run_path(const char *path)
{
    struct stat    about;
    struct dirent *entry;
    DIR           *folder;

    if (stat(path, &about) != 0) {
        printf("no corpus at %s\n", path);
        return 1;
    }
    if (!S_ISDIR(about.st_mode)) {
        return run_file(path);
    }
    folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        char name[4096];
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        run_file(name);
    }
    if (folder) {
        closedir(folder);
    }
    return 0;
}

int main(int count, char **arguments)
{
    int status = 0;

    for (int i = 1; i < count; i++) {
        status |= run_path(arguments[i]);
    }
    printf("%d inputs replayed\n", replayed);
    return status || replayed == 0;
}

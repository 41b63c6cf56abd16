/* Goal: the JPEGs on this machine, from any encoder, are equal to libjpeg-turbo's in each sample of
 * each box, or left to it for a reason that is counted.
 * Method: files below /usr/share, /usr/lib and Python's packages (or the arguments: files and
 * folders) that begin as a JPEG does, each content once; the complete image and its corners, with
 * vectors and without, with entry points and without. A few unless STOKER_TEST_LONG or arguments
 * are given. Prints how many each decoder decodes, and each file that is left to the library.
 * bench/found.py collects those inside archives, too. */
#include "base/xxh3.h"
#include "decode/jpeg/jpeg_corners_test.h"
#include "test/t.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (UINT64_C(64) << 20)
#define FILES_MAX (1u << 17)
#define PIXELS_MAX (ORACLE_BYTES_MAX / 4)
#define FEW_FILES 20u
#define FEW_PLACES 30000u   /* files looked at, JPEGs or not */
#define FEW_PIXELS 1500000u /* larger pictures are for the long run */

static const char *const folders[] = {"/usr/share/backgrounds",
                                      "/usr/share/wallpapers",
                                      "/usr/share",
                                      "/usr/lib",
                                      "/usr/local",
                                      "/opt",
                                      "/root",
                                      "/home"};
static struct corners corners;
static uint64_t hashes[FILES_MAX];
static uint32_t file_count, place_count, too_large;
static uint64_t found_bytes;
static bool all; /* no matter how many or large */

static bool is_new(uint64_t hash)
{
    for (uint32_t i = 0; i < file_count; i++) {
        if (hashes[i] == hash) {
            return false;
        }
    }
    hashes[file_count++] = hash;
    return true;
}

static void check_bytes(const char *path, struct stk_view bytes)
{
    struct stk_jpeg_frame frame;
    const char *wrong;
    uint32_t reason = stk_jpeg_frame_read(bytes, &frame);
    uint64_t pixels = reason ? 0 : (uint64_t)frame.width * frame.height;

    if (pixels > (all ? PIXELS_MAX : FEW_PIXELS)) {
        too_large++;
        return;
    }
    if (!is_new(stk_xxh3_64(bytes.data, bytes.bytes))) {
        return;
    }
    found_bytes += bytes.bytes;
    corners.may_leave = true; /* it is counted */
    wrong = corners_check(&corners, bytes, &reason);
    T_STR(path, wrong ? wrong : "", "");
    if (reason) {
        printf("left: %s: %s\n", stk_jpeg_reason_name(reason), path);
    }
}

/* By its first bytes; if only a few are needed, also by its name. */
static bool is_jpeg(int file, const char *path)
{
    const char *dot = strrchr(path, '.');
    uint8_t head[3];

    return (all || (dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0))) &&
           pread(file, head, sizeof head, 0) == sizeof head && head[0] == 0xff && head[1] == 0xd8 &&
           head[2] == 0xff;
}

static int visit(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    int file;
    uint8_t *bytes;

    (void)place;
    if (file_count == (all ? FILES_MAX : FEW_FILES) || (!all && place_count++ > FEW_PLACES)) {
        return 1;
    }
    if (kind != FTW_F || status->st_size < 4 || (uint64_t)status->st_size > FILE_BYTES_MAX) {
        return 0;
    }
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && is_jpeg(file, path)) {
        bytes = malloc((size_t)status->st_size);
        if (pread(file, bytes, (size_t)status->st_size, 0) == status->st_size) {
            check_bytes(path, (struct stk_view){bytes, (size_t)status->st_size});
        }
        free(bytes);
    }
    if (file >= 0) {
        close(file);
    }
    return 0;
}

int main(int count, char **arguments)
{
    const char *text = getenv("STOKER_TEST_LONG");
    const char *const *from = folders;
    int from_count = (int)STK_COUNT(folders);

    all = count > 1 || (text && text[0]);
    corners.seed = 1;
    corners_open(&corners);
    if (count > 1) {
        from = (const char *const *)arguments + 1;
        from_count = count - 1;
    }
    for (int i = 0; i < from_count; i++) {
        nftw(from[i], visit, 30, FTW_PHYS | FTW_MOUNT);
    }
    printf("%u JPEGs, %.1f MB, %llu boxes, %llu samples; %llu of which libjpeg warns; %u too "
           "large\n",
           file_count, (double)found_bytes / 1e6, (unsigned long long)corners.boxes,
           (unsigned long long)corners.samples, (unsigned long long)corners.warned, too_large);
    for (uint32_t i = 0; i < STK_JPEG_REASON_COUNT; i++) {
        if (corners.reasons[i]) {
            printf("%8llu %5.1f %% %s\n", (unsigned long long)corners.reasons[i],
                   100.0 * (double)corners.reasons[i] / file_count,
                   i ? stk_jpeg_reason_name(i) : "by our own decoder");
        }
    }
    corners_close(&corners);
    if (file_count == 0) {
        t_skip("no JPEGs on this machine");
    }
    return t_finish();
}

/* Goal: members, offsets, sizes, types and keys are those of Python's tarfile and of webdataset.
 * Method: Python writes tars with random names in every format, by its tarfile and by GNU tar,
 * and lists them with tarfile and webdataset's expressions; we list the same files.
 * Usage: tar_oracle_test [seed] */
#include "test/t.h"
#include "format/tar/tar.h"
#include "format/tar/wds_name.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints "T path" for each tar, then "M header data bytes type name key extension", names in hex
 * after an 'x', a key that is skipped as '-'. */
static const char script[] =
    "import io, os, random, re, subprocess, sys, tarfile\n"
    "folder, seed = sys.argv[1], int(sys.argv[2])\n"
    "r = random.Random(seed)\n"
    "letters = ['a', 'B', '0', '.', '_', '__', ' ', '\\u00e9', '\\u732b', '\\udcff', '-', '=', "
    "'\\n']\n"
    "def part(limit):\n"
    "    n = r.choice([1, 2, 3, 5, 8, 30, limit])\n"
    "    text = ''\n"
    "    while len(os.fsencode(text)) < n: text += r.choice(letters)\n"
    "    text = text[:n]\n"
    "    return 'z' + text if text in ('.', '..') else text\n"
    "def name(): return '/'.join(part(60) for _ in range(r.choice([1, 1, 2, 3, 6])))\n"
    "def by_python(path, format, encoding):\n"
    "    extra = {'comment': 'c', 'a.b': part(60)} if r.random() < .5 else None\n"
    "    kinds = [tarfile.REGTYPE] * 8 + [tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE,\n"
    "             tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]\n"
    "    with tarfile.open(path, 'w', format=format, pax_headers=extra, encoding=encoding,\n"
    "                      errors='surrogateescape') as t:\n"
    "        for _ in range(40):\n"
    "            info = tarfile.TarInfo(name())\n"
    "            info.type = r.choice(kinds)\n"
    "            if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE): info.linkname = name()\n"
    "            info.mtime = r.choice([0, 1234567890, 1234567890.25])\n"
    "            info.uid = r.choice([0, 1000, 3000000])\n"
    "            if r.random() < .3: info.pax_headers = {'k' + part(9).replace('=', ''): "
    "part(60)}\n"
    "            regular = info.isreg()\n"
    "            info.size = r.choice([0, 1, 511, 512, 513, 3000]) if regular else 0\n"
    "            try: t.addfile(info, io.BytesIO(b'd' * info.size) if regular else None)\n"
    "            except ValueError: pass\n"
    "def by_gnu_tar(path, format):\n"
    "    root = path + '.d'\n"
    "    os.mkdir(root)\n"
    "    last = None\n"
    "    for _ in range(30):\n"
    "        file = os.path.join(root, name())\n"
    "        try:\n"
    "            os.makedirs(os.path.dirname(file), exist_ok=True)\n"
    "            kind = r.random()\n"
    "            if last and kind < .1: os.link(last, file)\n"
    "            elif kind < .2: os.symlink(name(), file)\n"
    "            else:\n"
    "                with open(file, 'wb') as f: f.write(b'd' * r.choice([0, 1, 512, 3000]))\n"
    "                last = file\n"
    "        except OSError: pass\n"
    "    subprocess.run(['tar', '--create', '--format=' + format, '--file', path, '-C', root, "
    "'.'],\n"
    "                   stderr=subprocess.DEVNULL)\n"
    "def show(text): return 'x' + text.encode('utf-8', 'surrogateescape').hex()\n"
    "def split(text):\n"
    "    if '/' not in text and text.startswith('__') and text.endswith('__'): return '- -'\n"
    "    if re.match(r'__[^/]*__($|/)', text): return '- -'\n"
    "    m = re.match(r'^((?:.*/|)[^.]+)[.]([^/]*)$', text)\n"
    "    return show(m.group(1)) + ' ' + show(m.group(2)) if m else '- -'\n"
    "def list_tar(path):\n"
    "    print('T', path)\n"
    "    with tarfile.open(path, encoding='utf-8') as t:\n"
    "        for i in t:\n"
    "            kind = '0' if i.isreg() else i.type.decode()\n"
    "            size = i.size if i.isreg() or i.type not in tarfile.SUPPORTED_TYPES else 0\n"
    "            print('M', i.offset, i.offset_data, size, kind, show(i.name), split(i.name))\n"
    "for n in range(24):\n"
    "    path = os.path.join(folder, 'python%d.tar' % n)\n"
    "    by_python(path, n % 3, 'utf-8')\n"
    "    list_tar(path)\n"
    "for n, format in enumerate(['v7', 'oldgnu', 'gnu', 'ustar', 'posix'] * 2):\n"
    "    path = os.path.join(folder, 'gnu%d.tar' % n)\n"
    "    by_gnu_tar(path, format)\n"
    "    list_tar(path)\n";

enum { NAME_BYTES_MAX = 4096, TAR_BYTES_MAX = 4 << 20 };

struct reader {
    struct stk_tar *tar;
    uint8_t *bytes;
    size_t count;
    size_t chunk;
    struct stk_tar_step step;
    struct stk_view input;
};

static void close_reader(struct reader *reader)
{
    stk_tar_close(reader->tar);
    free(reader->bytes);
    memset(reader, 0, sizeof *reader);
}

static void open_reader(struct reader *reader, const char *path, unsigned number)
{
    static const size_t chunks[] = {100, 512, 4096, TAR_BYTES_MAX};
    FILE *file = fopen(path, "rb");

    reader->bytes = malloc(TAR_BYTES_MAX);
    reader->count = file ? fread(reader->bytes, 1, TAR_BYTES_MAX, file) : 0;
    reader->chunk = chunks[number % 4];
    T_TRUE(path, reader->count > 0 && reader->count < TAR_BYTES_MAX);
    if (file) {
        fclose(file);
    }
    stk_tar_open(&reader->tar, number % 3 ? reader->count : UINT64_MAX, NULL, NULL);
}

/* The next member or the end. */
static bool advance(struct reader *reader, const char *path)
{
    struct stoker_error error = {0};

    do {
        if (stk_tar_step(reader->tar, reader->input, &reader->step, &error) < 0) {
            printf("%s: %s: %s\n", path, error.what, error.where);
            T_TRUE(path, !"an error");
            return false;
        }
        if (reader->step.event == STK_TAR_NEED) {
            size_t left =
                reader->step.offset < reader->count ? reader->count - reader->step.offset : 0;
            reader->input.data = reader->bytes + (left ? reader->step.offset : 0);
            reader->input.bytes = left < reader->chunk ? left : reader->chunk;
        }
    } while (reader->step.event == STK_TAR_NEED);
    return reader->step.event == STK_TAR_MEMBER;
}

static bool same_as_hex(struct stk_view bytes, const char *hex)
{
    if (hex[0] != 'x' || strlen(hex + 1) != bytes.bytes * 2) {
        return false;
    }
    for (size_t i = 0; i < bytes.bytes; i++) {
        char pair[3];
        snprintf(pair, sizeof pair, "%02x", bytes.data[i]);
        if (memcmp(pair, hex + 1 + 2 * i, 2) != 0) {
            return false;
        }
    }
    return true;
}

static void check_member(struct reader *reader, const char *path, const char *line)
{
    static char name[2 * NAME_BYTES_MAX], key[2 * NAME_BYTES_MAX], end[2 * NAME_BYTES_MAX];
    unsigned long long header, data, bytes;
    char type;
    struct stk_view our_key, our_end;

    T_EQ(line,
         sscanf(line, "M %llu %llu %llu %c %8191s %8191s %8191s", &header, &data, &bytes, &type,
                name, key, end),
         7);
    if (!T_TRUE(line, advance(reader, path))) {
        return;
    }
    T_EQ(line, reader->step.header, header);
    T_EQ(line, reader->step.offset, data);
    T_EQ(line, reader->step.bytes, bytes);
    T_EQ(line, reader->step.type, type);
    T_TRUE(line, same_as_hex(reader->step.name, name));
    if (stk_wds_name_split(reader->step.name, &our_key, &our_end)) {
        T_TRUE(line, same_as_hex(our_key, key) && same_as_hex(our_end, end));
    } else {
        T_STR(line, key, "-");
    }
}

static void compare(FILE *listing)
{
    static char line[8 * NAME_BYTES_MAX], path[8 * NAME_BYTES_MAX];
    struct reader reader = {0};
    unsigned tars = 0, members = 0;

    while (fgets(line, sizeof line, listing)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == 'T') {
            if (reader.tar) {
                T_TRUE(path, !advance(&reader, path));
            }
            close_reader(&reader);
            snprintf(path, sizeof path, "%s", line + 2);
            open_reader(&reader, path, tars++);
        } else if (line[0] == 'M' && reader.tar) {
            check_member(&reader, path, line);
            members++;
        }
    }
    if (reader.tar) {
        T_TRUE(path, !advance(&reader, path));
    }
    close_reader(&reader);
    printf("%u tars, %u members\n", tars, members);
    T_EQ("all tars were listed", tars, 34);
    T_TRUE("members were listed", members > 900);
}

int main(int count, char **arguments)
{
    static const char *const pythons[] = {"/usr/bin/python3", "python3"};
    char folder[] = "/tmp/format_oracle_XXXXXX";
    char command[1024], script_path[64];
    const char *seed = count > 1 ? arguments[1] : "1";
    const char *python = access(pythons[0], X_OK) == 0 ? pythons[0] : pythons[1];
    FILE *file;

    snprintf(command, sizeof command, "%s -c 'import tarfile' && tar --version >/dev/null", python);
    if (system(command) != 0) {
        t_skip("python3 or tar is missing");
    }
    printf("seed %s\n", seed);
    if (!mkdtemp(folder)) {
        t_skip("/tmp is not writable");
    }
    snprintf(script_path, sizeof script_path, "%s/make.py", folder);
    file = fopen(script_path, "w");
    fputs(script, file);
    fclose(file);
    snprintf(command, sizeof command, "LC_ALL=C.UTF-8 %s %s %s %lu", python, script_path, folder,
             strtoul(seed, NULL, 10));
    file = popen(command, "r");
    compare(file);
    T_EQ("python3", pclose(file), 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    T_EQ("clean", system(command), 0);
    return t_finish();
}

#!/usr/bin/env python3
"""Goal: each rule of tidy.py, check_layers.py and check_exports.py catches what it is for.
Method: a small clean tree passes; each row then changes one file of it and names the one finding
that must come of it. Run as a program."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent

CONTRACT = "Owner: caller. Threads: one. Memory: none. Bound: none."
CLEAN = {
    "scripts/layers.txt": "base:\nformat: base\nloader: base format\ncli:\n",
    "scripts/tidy-exceptions.txt": "# what may stay\ntest src/cli/main.c a Python test runs it\n",
    "scripts/tool.py": "print('a tool')\n",
    "check": "#!/bin/sh\nexit 0\n",
    "include/stoker/stoker.h": "#ifndef STOKER_STOKER_H\n#define STOKER_STOKER_H\n"
                               "#define STOKER_API\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
                               "/* STOKER_API int stoker_old(int a); */\n"
                               "STOKER_API int stoker_one(int a,\n    int b);\n"
                               "#ifdef __cplusplus\n}\n#endif\n#endif\n",
    "src/base/mem.h": f"/* mem. {CONTRACT} */\n#ifndef BASE_MEM_H\n#define BASE_MEM_H\n#endif\n",
    "src/base/mem.c": "#include \"base/mem.h\"\n#include <stdlib.h>\n"
                      "void *take(void)\n{\n    return malloc(1);\n}\n",
    "src/base/mem_test.c": "#include \"base/mem.h\"\n#include \"test/t.h\"\n"
                           "int main(void)\n{\n    printf(\"good\");\n    return 0;\n}\n",
    "src/format/tar.h": f"/* tar. {CONTRACT} */\n#ifndef FORMAT_TAR_H\n#define FORMAT_TAR_H\n"
                        "#include <stoker/stoker.h>\n#endif\n",
    "src/format/tar.c": "#include \"format/tar.h\"\n#include \"base/mem.h\"\n#include <stdio.h>\n"
                        "struct seam {\n    int (*read)(void);\n};\n"
                        "/* free(x) and printf() in a comment are only words */\n"
                        "static const char *text = \"goto malloc(1);\";\n"
                        "int stk_tar(struct seam *seam)\n{\n"
                        "    return seam->read() + snprintf(NULL, 0, \"%s\", text);\n}\n",
    "src/format/tar_test.c": "#include \"format/tar.h\"\nint main(void)\n{\n    return 0;\n}\n",
    "src/format/tar_fuzz.c": "#include \"format/tar.h\"\n#include \"test/t.h\"\n",
    "src/test/corpus/tar/one": "a tar\n",
    "src/test/t.h": "/* the harness. Owner: test. Threads: one. Memory: none. Bound: none. */\n"
                    "#ifndef TEST_T_H\n#define TEST_T_H\n#include \"base/mem.h\"\n#endif\n",
    "src/cli/main.c": "#include <stoker/stoker.h>\n#include <stdio.h>\n"
                      "int main(void)\n{\n    puts(\"hello\");\n    return 0;\n}\n",
    "python/module.c": "#include <stoker/stoker.h>\n#include \"own.h\"\n",
    "python/own.h": "#ifndef OWN_H\n#define OWN_H\n#endif\n",
}

LONG_FUNCTION = "int long_one(void)\n{\n" + "    step();\n" * 68 + "}\n"  # 71 lines

# Name, script, file, text added to it (or the whole file), the finding.
ADDED = [
    ("file of 801 lines", "tidy", "src/format/tar_fuzz.c", "int a;\n" * 799,
     "src/format/tar_fuzz.c:801: file-lines:"),
    ("Python file of 801 lines", "tidy", "scripts/tool.py", "a = 1\n" * 800,
     "scripts/tool.py:801: file-lines:"),
    ("function of 71 lines", "tidy", "src/format/tar.c", LONG_FUNCTION,
     "src/format/tar.c:13: function-lines: 'long_one' has 71"),
    ("function of 71 lines in a test", "tidy", "src/format/tar_test.c", LONG_FUNCTION,
     "src/format/tar_test.c:6: function-lines: 'long_one' has 71"),
    ("seven parameters", "tidy", "src/format/tar.c",
     "static void many(int a, int (*b)(int, int), int c,\n    int d, int e, int f, int g)\n{\n}\n",
     "src/format/tar.c:13: parameters: 'many' has 7"),
    ("101 columns", "tidy", "src/format/tar.c", "/*" + "x" * 97 + "*/\n",
     "src/format/tar.c:13: columns: 101"),
    ("101 columns of Python", "tidy", "scripts/tool.py", "#" * 101 + "\n",
     "scripts/tool.py:2: columns: 101"),
    ("101 columns of shell", "tidy", "check", "#" * 101 + "\n", "check:3: columns: 101"),
    ("tab", "tidy", "src/format/tar.c", "\tint a;\n", "src/format/tar.c:13: tab:"),
    ("leftover", "tidy", "src/format/tar.c", "/* TO" "DO: later */\n",
     "src/format/tar.c:13: leftover:"),
    ("leftover in Python", "tidy", "scripts/tool.py", "# FIX" "ME\n",
     "scripts/tool.py:2: leftover:"),
    ("malloc", "tidy", "src/format/tar.c", "void *a(void)\n{\n    return malloc (8);\n}\n",
     "src/format/tar.c:15: memory: 'malloc'"),
    ("free in a macro", "tidy", "src/format/tar.c", "#define DROP(x) free(x)\n",
     "src/format/tar.c:13: memory: 'free'"),
    ("printf", "tidy", "src/format/tar.c", "void a(void)\n{\n    printf(\"x\");\n}\n",
     "src/format/tar.c:15: output: 'printf'"),
    ("stderr", "tidy", "src/format/tar.c", "void *a(void)\n{\n    return stderr;\n}\n",
     "src/format/tar.c:15: output: 'stderr'"),
    ("exit", "tidy", "src/base/mem.c", "void a(void)\n{\n    exit(1);\n}\n",
     "src/base/mem.c:9: output: 'exit'"),
    ("abort", "tidy", "src/base/mem.c", "void a(void)\n{\n    abort();\n}\n",
     "src/base/mem.c:9: output: 'abort'"),
    ("open", "tidy", "src/format/tar.c", "int a(void)\n{\n    return open(\"x\", 0);\n}\n",
     "src/format/tar.c:15: outside: 'open'"),
    ("pread", "tidy", "src/format/tar.c", "int a(void)\n{\n    return pread(0, 0, 0, 0);\n}\n",
     "src/format/tar.c:15: outside: 'pread'"),
    ("clock", "tidy", "src/format/tar.c", "int a(void)\n{\n    return clock_gettime(0, 0);\n}\n",
     "src/format/tar.c:15: outside: 'clock_gettime'"),
    ("rand", "tidy", "src/format/tar.c", "int a(void)\n{\n    return rand();\n}\n",
     "src/format/tar.c:15: outside: 'rand'"),
    ("strcpy in a test", "tidy", "src/format/tar_test.c",
     "void a(char *b)\n{\n    strcpy(b, b);\n}\n", "src/format/tar_test.c:8: unsafe: 'strcpy'"),
    ("atoi in the command", "tidy", "src/cli/main.c",
     "int a(void)\n{\n    return atoi(\"1\");\n}\n",
     "src/cli/main.c:10: unsafe: 'atoi'"),
    ("sprintf in Python's module", "tidy", "python/module.c",
     "void a(char *b)\n{\n    sprintf(b, b);\n}\n", "python/module.c:5: unsafe: 'sprintf'"),
    ("typedef", "tidy", "src/format/tar.c", "typedef struct seam seam;\n",
     "src/format/tar.c:13: typedef:"),
    ("macro with return", "tidy", "src/format/tar.c",
     "#define TRY(x) \\\n    if (x) \\\n        return 1\n",
     "src/format/tar.c:13: macro: 'TRY'"),
    ("macro with goto", "tidy", "src/format/tar.c", "#define FAIL(x) do { goto done; } while (0)\n",
     "src/format/tar.c:13: macro: 'FAIL'"),
    ("exception without use", "tidy", "scripts/tidy-exceptions.txt", "tab src/format/tar.c old\n",
     "scripts/tidy-exceptions.txt:3: stale:"),
    ("climbing include", "check_layers", "src/format/tar.c", "#include \"loader/loader.h\"\n",
     "src/format/tar.c:13: layer:"),
    ("include of a folder above", "check_layers", "src/format/tar.c",
     "#include \"../base/mem.h\"\n",
     "src/format/tar.c:13: path:"),
    ("include without a room", "check_layers", "src/format/tar.c", "#include \"tar.h\"\n",
     "src/format/tar.c:13: path:"),
    ("harness in the product", "check_layers", "src/format/tar.c", "#include \"test/t.h\"\n",
     "src/format/tar.c:13: layer:"),
    ("test that climbs", "check_layers", "src/format/tar_test.c",
     "#include \"loader/loader.h\"\n", "src/format/tar_test.c:6: layer:"),
    ("room in the command", "check_layers", "src/cli/main.c", "#include \"base/mem.h\"\n",
     "src/cli/main.c:8: layer:"),
    ("room in Python's module", "check_layers", "python/module.c", "#include \"base/mem.h\"\n",
     "python/module.c:3: layer:"),
    ("list that climbs", "check_layers", "scripts/layers.txt", "io: later\n",
     "scripts/layers.txt:5: order:"),
]
HEADER = "/* {}. {} */\n#ifndef {}\n#define {}\n#endif\n"
WRITTEN = [
    ("guard of another name", "tidy", "src/format/wds.h",
     HEADER.format("wds", CONTRACT, "WDS_H", "WDS_H"), "src/format/wds.h:2: guard:"),
    ("no guard", "tidy", "src/format/wds.h", f"/* wds. {CONTRACT} */\n",
     "src/format/wds.h:1: guard:"),
    ("header without its contract", "tidy", "src/format/wds.h",
     HEADER.format("wds", "Owner: caller. Memory: none.", "FORMAT_WDS_H", "FORMAT_WDS_H"),
     "src/format/wds.h:1: contract: say Threads, Bound"),
    ("own header last", "tidy", "src/format/tar.c",
     "#include \"base/mem.h\"\n#include \"format/tar.h\"\n", "src/format/tar.c:1: own-header:"),
    ("name used twice", "tidy", "src/format/mem.h",
     HEADER.format("mem", CONTRACT, "FORMAT_MEM_H", "FORMAT_MEM_H"),
     "src/format/mem.h:1: unique:"),
    ("source without a test", "tidy", "src/base/sum.c", "int a;\n", "src/base/sum.c:1: test:"),
    ("exception without a reason", "tidy", "scripts/tidy-exceptions.txt",
     "test src/cli/main.c\n", "scripts/tidy-exceptions.txt:1: reason:"),
    ("unlisted room", "check_layers", "src/new/new.c", "int a;\n", "src/new/new.c:1: room:"),
]


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def run(script, *arguments):
    done = subprocess.run([sys.executable, SCRIPTS / f"{script}.py", *arguments],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()[:-1], done.stdout + done.stderr


class Checks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stoker-checks-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, text in CLEAN.items():
            write(self.root, path, text)

    def assert_finding(self, script, want):
        status, findings, output = run(script, self.root)
        self.assertEqual(status, 1, output)
        self.assertEqual(len(findings), 1, output)
        self.assertTrue(findings[0].startswith(want), output)

    def test_clean_tree(self):
        for script in ("tidy", "check_layers"):
            status, findings, output = run(script, self.root)
            self.assertEqual((status, findings), (0, []), output)

    def test_each_rule(self):
        rows = [(name, script, path, CLEAN[path] + text, want)
                for name, script, path, text, want in ADDED] + WRITTEN
        for name, script, path, text, want in rows:
            with self.subTest(name):
                write(self.root, path, text)
                self.assert_finding(script, want)
                (self.root / path).unlink()
                if path in CLEAN:
                    write(self.root, path, CLEAN[path])

    def test_parser_without_a_fuzz_target(self):
        (self.root / "src/format/tar_fuzz.c").unlink()
        self.assert_finding("tidy", "src/format/tar.c:1: fuzz:")

    def test_parser_by_what_it_calls(self):
        write(self.root, "src/base/mem.c", CLEAN["src/base/mem.c"] +
              "void *look(void)\n{\n    return json_loadb(0, 0, 0, 0);\n}\n")
        self.assert_finding("tidy", "src/base/mem.c:1: fuzz:")

    def test_fuzz_target_without_inputs(self):
        (self.root / "src/test/corpus/tar/one").unlink()
        self.assert_finding("tidy", "src/format/tar_fuzz.c:1: corpus:")

    def test_too_many_sources(self):
        for number in range(12):
            write(self.root, f"src/base/part{number}.c", "int a;\n")
        write(self.root, "src/base/parts_test.c",
              "".join(f"/* part{number}.c */\n" for number in range(12)))
        self.assert_finding("tidy", "src/base:1: room: 13 sources")

    def exports(self, text):
        source, library = self.root / "library.c", self.root / "library.so"
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return run("check_exports", library, self.root / "include/stoker/stoker.h")

    def test_exports(self):
        status, findings, output = self.exports("int stoker_one(int a) { return a; }")
        self.assertEqual((status, findings), (0, []), output)

    def test_exports_too_much_or_too_little(self):
        rows = [("int stoker_one(int a) { return a; } int stk_two;", "'stk_two' is exported; hide"),
                ("int stoker_one(int a) { return a; } int stoker_two;", "'stoker_two' is exported"),
                ("static int stoker_one;", "'stoker_one' is declared and not exported")]
        for text, want in rows:
            with self.subTest(want):
                status, findings, output = self.exports(text)
                self.assertEqual((status, len(findings)), (1, 1), output)
                self.assertIn(want, findings[0])


if __name__ == "__main__":
    unittest.main()

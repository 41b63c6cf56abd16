/* Goal: the number of the process is right in a parent, its child and its grandchild.
 * Method: forks, and the kernel's number. */
#include "base/thread.h"

#include "test/t.h"

#include <sys/wait.h>
#include <unistd.h>

static int status_of_child(pid_t child)
{
    int status = -1;

    T_EQ("waited", waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_numbers(void)
{
    pid_t parent = stk_process_id(), child;

    T_EQ("parent", parent, getpid());
    child = fork();
    if (child == 0) {
        pid_t grandchild;

        if (stk_process_id() != getpid() || stk_process_id() == parent) {
            _exit(1);
        }
        grandchild = fork();
        if (grandchild == 0) {
            _exit(stk_process_id() == getpid() ? 0 : 1);
        }
        _exit(status_of_child(grandchild));
    }
    T_EQ("child", status_of_child(child), 0);
    T_EQ("parent later", stk_process_id(), getpid());
}

int main(void)
{
    test_numbers();
    return t_finish();
}

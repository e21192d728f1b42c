/* Steers every clang of a build that a plugin was built for, and leaves the others alone.
 *
 * `tfrl build` has each clang load this library as a pass plugin. It needs no LLVM, so every clang
 * can load it. It finds out which LLVM is in the process and hands over to the plugin for that one,
 * DIRECTORY/inliner-MAJOR.so, where DIRECTORY is the one that holds this library. If there is none,
 * or it cannot be loaded, the clang compiles as it would alone.
 *
 * TFRL_INLINING_LOG names a file to append to: a line of JSON for each clang that is not steered.
 * TFRL_INLINING_CONFIG is the directory of configuration files that made clang load this library. Its
 * name is blanked in the entry that clang writes for -MJ into a compilation database.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What LLVM asks a plugin for, by the version of its interface. From LLVM 22 on there is a callback
 * more. */
struct info_1 {
  uint32_t api_version;
  const char *name;
  const char *version;
  void (*register_callbacks)(void *builder);
};
struct info_2 {
  uint32_t api_version;
  const char *name;
  const char *version;
  void (*register_callbacks)(void *builder);
  void *before_code_generation;
};

static unsigned llvm_major(void) {
  unsigned major = 0, minor, patch;
  void (*get)(unsigned *, unsigned *, unsigned *) =
      (void (*)(unsigned *, unsigned *, unsigned *))dlsym(RTLD_DEFAULT, "LLVMGetVersion");
  if (get) {
    get(&major, &minor, &patch);
    return major;
  }
  /* A clang that has LLVM inside and does not show it; its file is called clang-19 or the like. */
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) {
    path[length] = 0;
    const char *name = strrchr(path, '/');
    if (name && sscanf(name, "/clang-%u", &major) == 1)
      return major;
  }
  return 0;
}

/* Whether an argument looks like the name of a source. */
static int is_source(const char *argument) {
  static const char *const suffixes[] = {".c", ".cc", ".cpp", ".cxx", ".C", ".c++",
                                         ".m", ".mm", ".i",   ".ii",  ".bc", ".ll"};
  const char *suffix = strrchr(argument, '.');
  for (size_t k = 0; suffix && k < sizeof suffixes / sizeof *suffixes; ++k)
    if (*argument != '-' && !strcmp(suffix, suffixes[k]))
      return 1;
  return 0;
}

/* Reads a process's command line, words that end with a zero byte; returns its length, 0 if it cannot. */
static ssize_t read_arguments(pid_t process, char *arguments, size_t room) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cmdline", (int)process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  const ssize_t length = read(file, arguments, room - 1);
  close(file);
  arguments[length > 0 ? length : 0] = 0;
  return length > 0 ? length : 0;
}

/* Replaces what cannot stand in a string of JSON. */
static void make_printable(char *text) {
  for (; *text; ++text)
    if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
      *text = '?';
}

/* Finds the name of the file that this clang compiles. A driver that runs its cc1 in its own process
 * has the user's arguments; a cc1 of its own is told the name. */
static void find_source(char *name, size_t room) {
  static const char option[] = "-main-file-name";
  static char arguments[1 << 16];
  name[0] = 0;
  const ssize_t length = read_arguments(getpid(), arguments, sizeof arguments);
  for (const char *at = arguments; at < arguments + length; at += strlen(at) + 1)
    if (!strcmp(at, option) && at + sizeof option < arguments + length) {
      snprintf(name, room, "%s", at + sizeof option);
      break;
    } else if (is_source(at)) {
      const char *slash = strrchr(at, '/');
      snprintf(name, room, "%s", slash ? slash + 1 : at);
    }
  make_printable(name);
}

/* Appends a line to the log. */
static void append(const char *line) {
  const char *path = getenv("TFRL_INLINING_LOG");
  if (!path || !*path)
    return;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0)
    return;
  if (write(file, line, strlen(line)) < 0) {
    /* Nothing can be done: a build must not notice. */
  }
  close(file);
}

/* Says in the log why this clang is not steered. */
static void tell(unsigned major, const char *reason) {
  char source[256], line[512];
  find_source(source, sizeof source);
  snprintf(line, sizeof line,
           "{\"source\":\"%s\",\"llvm\":%u,\"steered\":false,\"reason\":\"%s\"}\n", source, major,
           reason);
  append(line);
}

/* Finds the file that a command line names by -MJ; returns NULL if there is none. */
static const char *find_fragment(const char *arguments, ssize_t length) {
  const char *fragment = NULL;
  for (const char *at = arguments; at < arguments + length; at += strlen(at) + 1)
    if (!strncmp(at, "-MJ", 3))
      fragment = at[3] ? at + 3 : at + 4 < arguments + length ? at + 4 : NULL;
  return fragment;
}

/* Overwrites each word in a file with spaces. Other clangs may append to it meanwhile. */
static void blank(const char *path, const char *const *words, int num_words) {
  struct stat status;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0)
    return;
  char *text = NULL;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size < (64 << 20))
    text = malloc((size_t)status.st_size + 1);
  const ssize_t length = text ? read(file, text, (size_t)status.st_size) : 0;
  for (int k = 0; k < num_words && length > 0; ++k) {
    const size_t size = strlen(words[k]);
    char spaces[PATH_MAX + 64];
    memset(spaces, ' ', sizeof spaces);
    for (char *at = text; (at = memmem(at, (size_t)(text + length - at), words[k], size)); at += size)
      if (pwrite(file, spaces, size, at - text) < 0)
        break;
  }
  free(text);
  close(file);
}

/* When the process ends, clang has written what it records for -MJ, with the options that made it
 * load this library. */
__attribute__((destructor)) static void clean_fragment(void) {
  static char arguments[1 << 16];
  char option[PATH_MAX + 64], plugin[PATH_MAX + 64], line[PATH_MAX + 64], here[PATH_MAX];
  const char *place = getenv("TFRL_INLINING_CONFIG"), *fragment;
  if (!place || !*place || strlen(place) >= PATH_MAX)
    return;
  if ((fragment = find_fragment(arguments, read_arguments(getpid(), arguments, sizeof arguments)))) {
    snprintf(option, sizeof option, "\"--config-user-dir=%s\", ", place);
    snprintf(plugin, sizeof plugin, "\"-fpass-plugin=%s/steer.so\", ", place);
    const char *const words[] = {option, plugin};
    blank(fragment, words, 2);
  } else if ((fragment = find_fragment(arguments,
                                       read_arguments(getppid(), arguments, sizeof arguments)))) {
    /* The driver, which waits for this process, will write it. `tfrl build` looks at it at the end. */
    const int is_absolute = *fragment == '/';
    if (!is_absolute && !getcwd(here, sizeof here))
      return;
    if (snprintf(line, sizeof line, "{\"fragment\":\"%s%s%s", is_absolute ? "" : here,
                 is_absolute ? "" : "/", fragment) >= PATH_MAX)
      return;
    make_printable(line + strlen("{\"fragment\":\""));
    strcat(line, "\"}\n");
    append(line);
  }
}

static void do_nothing(void *builder) { (void)builder; }
static struct info_1 nothing_1(void) {
  return (struct info_1){1, "tfrl-steer", "1", do_nothing};
}
static struct info_2 nothing_2(void) {
  return (struct info_2){2, "tfrl-steer", "1", do_nothing, NULL};
}

/* Whether a library is all there. The loader would crash the compiler over a file that was cut off:
 * linkers put the table of the sections at the end. */
static int is_whole(const char *path) {
  Elf64_Ehdr header;
  struct stat status;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  const int is_read = read(file, &header, sizeof header) == (ssize_t)sizeof header &&
                      fstat(file, &status) == 0;
  close(file);
  return is_read && !memcmp(header.e_ident, ELFMAG, SELFMAG) && header.e_shoff != 0 &&
         header.e_shoff + (uint64_t)header.e_shnum * header.e_shentsize <= (uint64_t)status.st_size;
}

/* Returns the entry point of the plugin for this LLVM; NULL if there is none. */
static void *find_plugin(unsigned major) {
  Dl_info here;
  char path[PATH_MAX];
  if (!dladdr((void *)find_plugin, &here) || !here.dli_fname)
    return NULL;
  const char *slash = strrchr(here.dli_fname, '/');
  const int length = slash ? (int)(slash - here.dli_fname) : 0;
  if (snprintf(path, sizeof path, "%.*s/inliner-%u.so", length, here.dli_fname, major) >=
      (int)sizeof path)
    return NULL;
  if (access(path, R_OK) != 0) {
    tell(major, "no plugin was built for this clang");
    return NULL;
  }
  /* Every symbol is looked up now: one that this LLVM lacks must not end the compile later. */
  void *plugin = is_whole(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *entry = plugin ? dlsym(plugin, "llvmGetPassPluginInfo") : NULL;
  if (!entry)
    tell(major, "the plugin cannot be loaded by this clang");
  return entry;
}

/* The function that LLVM calls returns a struct whose size depends on LLVM's version. So it is a jump
 * to one that returns the right struct. */
__attribute__((visibility("hidden"))) void *tfrl_entry;

__attribute__((constructor)) static void choose(void) {
  const unsigned major = llvm_major();
  tfrl_entry = find_plugin(major);
  if (!tfrl_entry)
    tfrl_entry = major >= 22 ? (void *)nothing_2 : (void *)nothing_1;
}

#if defined(__x86_64__)
#define JUMP "endbr64\n jmpq *tfrl_entry(%rip)\n"
#elif defined(__aarch64__)
#define JUMP "adrp x16, tfrl_entry\n ldr x16, [x16, :lo12:tfrl_entry]\n br x16\n"
#else
#error "expected x86-64 or AArch64, found another processor"
#endif
__asm__(".text\n"
        ".globl llvmGetPassPluginInfo\n"
        ".type llvmGetPassPluginInfo, %function\n"
        "llvmGetPassPluginInfo:\n" JUMP
        ".size llvmGetPassPluginInfo, .-llvmGetPassPluginInfo\n");

# Toolchain file: Debian's cross compiler for 64-bit ARM, its libraries of the foreign architecture (tools/deps.sh aarch64), and
# qemu-user to run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
# -E: a variable in the environment of the program, which tells the tests that they are emulated.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -E GDN2_TEST_EMULATOR=1)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# pkg-config must not answer with this machine's own libraries.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

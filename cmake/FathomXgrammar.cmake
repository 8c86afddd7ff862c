# The target xgrammar::xgrammar: the library behind fathom/grammar, compiled from the source that scripts/fetch-libraries
# puts into .deps/. Its own CMakeLists.txt is not used: that one adds -Werror and -flto to everything, wants a
# config.cmake, and builds Python bindings. What it compiles is a list of files, which we give ourselves.
#
# Always -O2, except under sanitizers, whose flags hold here too: a debug build of it fills masks 30 times slower, and
# nobody debugs it. Its warnings are not ours. About two minutes on one core, once; ccache keeps the objects.
set(xgrammar_source ${PROJECT_SOURCE_DIR}/.deps/xgrammar-0.2.9)
if(NOT EXISTS ${xgrammar_source}/.sha256)
  message(FATAL_ERROR "fathom: xgrammar 0.2.9 is not there (.deps/xgrammar-0.2.9): run scripts/fetch-libraries once; "
                      "it needs the network.")
endif()
file(GLOB xgrammar_files ${xgrammar_source}/cpp/*.cc ${xgrammar_source}/cpp/converter_ext/*.cc
     ${xgrammar_source}/cpp/support/*.cc)
add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_files})
add_library(xgrammar::xgrammar ALIAS xgrammar)
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17 EXPORT_COMPILE_COMMANDS OFF)
target_include_directories(xgrammar SYSTEM PUBLIC ${xgrammar_source}/include ${xgrammar_source}/3rdparty/dlpack/include
                           PRIVATE ${xgrammar_source}/3rdparty/picojson)
# LOG_CUSTOMIZE: it would print warnings and failures to stderr; fathom/grammar/compile defines what happens instead.
target_compile_definitions(xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
                           XGRAMMAR_LOG_CUSTOMIZE=1)
target_compile_options(xgrammar PRIVATE -w)
if(NOT FATHOM_SANITIZE AND NOT FATHOM_FUZZ)
  target_compile_options(xgrammar PRIVATE -O2)
endif()
target_link_libraries(xgrammar PUBLIC Threads::Threads)

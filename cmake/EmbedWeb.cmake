# cmake -DFOLDER=fathom/server/web -DFILES=index.html,style.css -DOUT=web_files.cpp -P EmbedWeb.cmake
#
# Compiles the page of `fathom serve` into the program. index.html is served at /, the others at /web/NAME.
set(types_html "text/html; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_svg "image/svg+xml")

string(REPLACE "," ";" names "${FILES}")
set(rows "")
foreach(name ${names})
  file(READ ${FOLDER}/${name} content)
  file(SHA256 ${FOLDER}/${name} hash)
  string(SUBSTRING ${hash} 0 16 tag)
  string(REGEX REPLACE ".*\\." "" ending ${name})
  if(name STREQUAL "index.html")
    set(path "/")
  else()
    set(path "/web/${name}")
  endif()
  string(APPEND rows "    {\"${path}\", \"${types_${ending}}\", \"\\\"${tag}\\\"\",\n     R\"WEBFILE(${content})WEBFILE\"},\n")
endforeach()
file(WRITE ${OUT} "// Written by cmake/EmbedWeb.cmake.\n#include \"fathom/server/web_page.h\"\n\nnamespace fathom {\n\nstd::span<const WebFile> web_files() {\n  static constexpr WebFile kFiles[] = {\n${rows}  };\n  return kFiles;\n}\n\n}  // namespace fathom\n")

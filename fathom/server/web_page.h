// fathom/server/web_page.h
// The page at /: a chat and the live state of the engine, for a browser. The files of web/ are compiled in
// (cmake/EmbedWeb.cmake) and are all there is: the page loads nothing from elsewhere, and its Content-Security-Policy
// lets it ask only the server that it came from. It needs no key; what it then asks for does.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "fathom/net/http_message.h"

namespace fathom {

struct WebFile {
  std::string_view path;  // "/" or "/web/style.css"
  std::string_view type;  // Content-Type
  std::string_view etag;  // with its quotes; of the content
  std::string_view text;
};

/// All of them; the first is the page itself.
std::span<const WebFile> web_files();

/// For ServiceOptions::page: the file of this path, 304 when the browser has it already; nothing for other paths.
std::optional<net::HttpAnswer> web_page(const net::HttpRequest& request);

}  // namespace fathom

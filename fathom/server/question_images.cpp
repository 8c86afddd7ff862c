#include "fathom/server/question_images.h"

#include <memory>
#include <stop_token>
#include <utility>

namespace fathom {

void with_images(Service& service, const SharedExchange& exchange, recipe::Prompt& prompt, const ImageParts& parts,
                 std::function<void(std::vector<ImageData>)> go_on) {
  if (prompt.images.empty()) return go_on({});
  if (!service.options().log_prompts) exchange->request.drop_body();  // the images are in it
  const auto stop = std::make_shared<std::stop_source>();
  exchange->responder->on_gone([stop] { stop->request_stop(); });
  const auto got = [&service, exchange, go_on = std::move(go_on)](Result<std::vector<ImageData>> images) {
    if (exchange->responder->gone()) return service.forget(*exchange);
    if (!images) return service.refuse(*exchange, images.error());
    const auto all = std::make_shared<std::vector<ImageData>>(std::move(*images));
    if (!service.work([go_on, all] { go_on(std::move(*all)); })) {
      service.refuse(*exchange,
                     Error{ErrorCode::interrupted, "the server has no time for this request: try again later", "", ""});
    }
  };
  std::vector<std::string> places = parts_of(prompt.images, parts);
  std::vector<ImageWanted> wanted;
  for (size_t i = 0; i < places.size(); ++i) wanted.push_back({std::move(prompt.images[i]), std::move(places[i])});
  prompt.images.clear();
  service.images().get(std::move(wanted), exchange->id, stop->get_token(), got);
}

}  // namespace fathom

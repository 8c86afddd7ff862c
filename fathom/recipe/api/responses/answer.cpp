#include "fathom/recipe/api/responses/answer.h"

#include "fathom/recipe/api/responses/answer_output.h"

namespace fathom::recipe {

ResponsesWriter::ResponsesWriter(ResponsesForm form) : output_(std::make_unique<ResponsesOutput>(std::move(form))) {}
ResponsesWriter::ResponsesWriter(ResponsesWriter&&) noexcept = default;
ResponsesWriter& ResponsesWriter::operator=(ResponsesWriter&&) noexcept = default;
ResponsesWriter::~ResponsesWriter() = default;

void ResponsesWriter::start(const AnswerStart&, WireEvents& out) { output_->start(&out); }
void ResponsesWriter::write(const Delta& delta, WireEvents& out) { output_->write(delta, &out); }
void ResponsesWriter::finish(const AnswerEnd& end, WireEvents& out) { output_->finish(end, &out); }
void ResponsesWriter::fail(const Error& error, WireEvents& out) { output_->fail(error, out); }
void ResponsesWriter::keep_alive(WireEvents& out) { output_->keep_alive(out); }

ResponsesBody::ResponsesBody(ResponsesForm form) : output_(std::make_unique<ResponsesOutput>(std::move(form))) {}
ResponsesBody::ResponsesBody(ResponsesBody&&) noexcept = default;
ResponsesBody& ResponsesBody::operator=(ResponsesBody&&) noexcept = default;
ResponsesBody::~ResponsesBody() = default;

void ResponsesBody::start(const AnswerStart&) { output_->start(nullptr); }
void ResponsesBody::write(const Delta& delta) { output_->write(delta, nullptr); }
void ResponsesBody::finish(const AnswerEnd& end) { output_->finish(end, nullptr); }
void ResponsesBody::append_to(std::string& out) const { output_->append_response(out); }

}  // namespace fathom::recipe

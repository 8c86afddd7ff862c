from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

__version__: str
IMAGE_SPECIAL_TOKEN_ID: int

Policy: TypeAlias = Literal["default", "strict"]
ToolChoice: TypeAlias = Literal["auto", "none", "required"]
ReasoningEffort: TypeAlias = Literal["low", "high", "xhigh", "max"]
ResponseFormat: TypeAlias = Literal["text", "json_object", "json_schema", "regex"]
ImageDetail: TypeAlias = Literal["low", "high", "original", "auto"]
Role: TypeAlias = Literal["system", "user", "assistant", "tool", "latest_reminder"]
ImageSourceKind: TypeAlias = Literal["data_url", "url", "bytes"]
RequestBody: TypeAlias = bytes | str | dict[str, Any]

class ConversionError(Exception):
    """A request whose shape is right but that makes no sense."""

    status_code: int
    body: str
    """The JSON for the client, under the policy that the request was read with."""
    param: str | None
    """The JSON path of the value at fault, when it is one value."""

class _Enumeration:
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

# -- special tokens ----------------------------------------------------------------------------------------------------

class SpecialToken(_Enumeration):
    Bos: SpecialToken
    Eos: SpecialToken
    ThinkingStart: SpecialToken
    ThinkingEnd: SpecialToken
    System: SpecialToken
    User: SpecialToken
    Assistant: SpecialToken
    LatestReminder: SpecialToken
    Dsml: SpecialToken
    Image: SpecialToken
    Ref: SpecialToken
    RefEnd: SpecialToken
    Box: SpecialToken
    BoxEnd: SpecialToken
    Point: SpecialToken
    PointEnd: SpecialToken
    Polygon: SpecialToken
    PolygonEnd: SpecialToken

    def default_str(self) -> str:
        """The published spelling."""

class SpecialTokens:
    """How each special token is spelt; what is not given keeps its published spelling."""

    def __init__(
        self,
        *,
        bos: str | None = None,
        eos: str | None = None,
        thinking_start: str | None = None,
        thinking_end: str | None = None,
        system: str | None = None,
        user: str | None = None,
        assistant: str | None = None,
        latest_reminder: str | None = None,
        dsml: str | None = None,
        image: str | None = None,
        ref: str | None = None,
        ref_end: str | None = None,
        box: str | None = None,
        box_end: str | None = None,
        point: str | None = None,
        point_end: str | None = None,
        polygon: str | None = None,
        polygon_end: str | None = None,
    ) -> None: ...
    def token(self, token: SpecialToken) -> str: ...

# -- conversation ------------------------------------------------------------------------------------------------------

class ImageSource:
    """An image that a message refers to; nobody has looked at its bytes yet."""

    @property
    def kind(self) -> ImageSourceKind: ...
    @property
    def detail(self) -> ImageDetail: ...
    @property
    def data_url(self) -> str | None: ...
    @property
    def url(self) -> str | None: ...
    @property
    def data(self) -> bytes | None: ...
    @property
    def path(self) -> str:
        """Where the request had it, as errors say it; empty for one made by hand."""

class DataUrlImageSource(ImageSource):
    def __init__(self, data_url: str, detail: ImageDetail = "high", *, path: str = "") -> None: ...

class UrlImageSource(ImageSource):
    def __init__(self, url: str, detail: ImageDetail = "high", *, path: str = "") -> None: ...

class BytesImageSource(ImageSource):
    def __init__(self, data: bytes, detail: ImageDetail = "high", *, path: str = "") -> None: ...

class ToolCall:
    """A call in the history. Its arguments are text that nobody has checked."""

    def __init__(self, id: str, name: str, arguments: str) -> None: ...
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...

class ToolDefinition:
    """A tool as given: only conversion normalises the schema of a strict one."""

    def __init__(
        self,
        name: str,
        description: str | None = None,
        parameters: Any = None,
        strict: bool | None = None,
        defer_loading: bool = False,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def parameters(self) -> Any: ...
    @property
    def strict(self) -> bool | None: ...
    @property
    def defer_loading(self) -> bool: ...

class Message:
    """What all roles have; a property that a role lacks is None, False or empty."""

    @property
    def role(self) -> Role: ...
    @property
    def content(self) -> str: ...
    @property
    def reasoning_content(self) -> str | None: ...
    @property
    def tool_calls(self) -> list[ToolCall] | None: ...
    @property
    def tool_call_id(self) -> str | None: ...
    @property
    def image_sources(self) -> list[ImageSource]: ...
    @property
    def prefix(self) -> bool:
        """An assistant turn that is to be continued."""

class SystemMessage(Message):
    def __init__(
        self,
        content: str,
        image_sources: Sequence[ImageSource] | None = None,
        tools: Sequence[ToolDefinition] | None = None,
        *,
        image_token: str | None = None,
    ) -> None: ...
    @property
    def tools(self) -> list[ToolDefinition] | None: ...

class UserMessage(Message):
    """The first occurrences of `image_token` in `content`, one for each source, stand for the images."""

    def __init__(
        self, content: str, image_sources: Sequence[ImageSource] | None = None, *, image_token: str | None = None
    ) -> None: ...

class AssistantMessage(Message):
    def __init__(
        self,
        content: str,
        reasoning_content: str | None = None,
        tool_calls: Sequence[ToolCall] | None = None,
        prefix: bool = False,
    ) -> None: ...

class ToolMessage(Message):
    def __init__(
        self,
        content: str,
        tool_call_id: str | None = None,
        image_sources: Sequence[ImageSource] | None = None,
        *,
        image_token: str | None = None,
    ) -> None: ...

class LatestReminderMessage(Message):
    def __init__(self, content: str) -> None: ...

class Conversation:
    """Who said what, which tools there are, how the answer shall look. Cannot be changed."""

    def __init__(
        self,
        messages: Sequence[Message] | None = None,
        *,
        thinking_mode: bool = True,
        tools: Sequence[ToolDefinition] | None = None,
        tool_choice: ToolChoice = "auto",
        reasoning_effort: ReasoningEffort | None = None,
        response_format: Literal["text", "json_object"] = "text",
        response_schema: Any | None = None,
        response_regex: str | None = None,
    ) -> None: ...
    @property
    def messages(self) -> list[Message]: ...
    @property
    def thinking_mode(self) -> bool: ...
    @property
    def tools(self) -> list[ToolDefinition]: ...
    @property
    def tool_choice(self) -> ToolChoice: ...
    @property
    def reasoning_effort(self) -> ReasoningEffort | None: ...
    @property
    def reasoning_effort_number(self) -> int | None:
        """1 to 100 when a request under the default policy gave a number (not in deepseek-recipe)."""
    @property
    def response_format(self) -> ResponseFormat: ...
    @property
    def response_schema(self) -> Any | None: ...
    @property
    def response_regex(self) -> str | None: ...

# -- prompts -----------------------------------------------------------------------------------------------------------

class Tokenizer:
    """A tokenizer.json of the DeepSeek V4 family. Any number of threads may use one."""

    @staticmethod
    def from_file(path: str) -> Tokenizer: ...
    @staticmethod
    def from_str(text: str) -> Tokenizer: ...
    @staticmethod
    def from_pretrained(identifier: str, revision: str | None = None, token: str | None = None) -> Tokenizer:
        """Raises NotImplementedError: the codec downloads nothing."""
    def encode(self, text: str) -> list[int]:
        """With added tokens wherever their spelling stands: not for prompts. Other threads run meanwhile."""
    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids, special tokens included (not in deepseek-recipe)."""

class RenderedPrompt:
    @property
    def prompt(self) -> str: ...
    @property
    def special_ranges(self) -> list[tuple[int, int]]:
        """Indices into `prompt`, half-open: the text there is a special token, all else is plain text."""
    @property
    def image_sources(self) -> list[ImageSource]: ...

class DeepseekV4Encoding:
    def __init__(self) -> None: ...
    def with_tokenizer(self, tokenizer: Tokenizer) -> DeepseekV4Encoding: ...
    def with_special_tokens(self, special_tokens: SpecialTokens) -> DeepseekV4Encoding: ...
    def render_conversation(self, conversation: Conversation) -> RenderedPrompt: ...
    def encode(self, conversation: Conversation) -> list[int]:
        """RuntimeError without a tokenizer, or when it lacks a special token. Other threads run meanwhile."""

class DeepseekV41Encoding:
    def __init__(self) -> None: ...
    def with_tokenizer(self, tokenizer: Tokenizer) -> DeepseekV41Encoding: ...
    def with_special_tokens(self, special_tokens: SpecialTokens) -> DeepseekV41Encoding: ...
    def render_conversation(self, conversation: Conversation) -> RenderedPrompt: ...
    def encode(self, conversation: Conversation) -> list[int]:
        """RuntimeError without a tokenizer, or when it lacks a special token. Other threads run meanwhile."""

# -- options -----------------------------------------------------------------------------------------------------------

class WebSearchBehavior(_Enumeration):
    Drop: WebSearchBehavior
    Reject: WebSearchBehavior

class ReasoningContentBehavior(_Enumeration):
    FillEmpty: ReasoningContentBehavior
    Reject: ReasoningContentBehavior

class ModelVersion(_Enumeration):
    DeepseekV4Pro: ModelVersion
    DeepseekV41Flash: ModelVersion

class ThinkingInitialStage(_Enumeration):
    ReasoningStart: ThinkingInitialStage
    ReasoningContinuation: ThinkingInitialStage
    ContentContinuation: ThinkingInitialStage

    def starts_in_reasoning(self) -> bool: ...

class ConversionOptions:
    """The operator's choices, the same for all requests. Every with_… returns other options."""

    def __init__(
        self,
        *,
        default_thinking_mode: bool = True,
        reasoning_content_behavior: ReasoningContentBehavior = ReasoningContentBehavior.FillEmpty,
        responses_web_search: WebSearchBehavior = WebSearchBehavior.Drop,
        messages_web_search: WebSearchBehavior = WebSearchBehavior.Reject,
        thinking_max_tokens_upper_bound: int = 393216,
        non_thinking_max_tokens_upper_bound: int = 393216,
        policy: Policy = "default",
    ) -> None: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def default_thinking_mode(self) -> bool: ...
    @property
    def model_versions_by_name(self) -> dict[str, ModelVersion]: ...
    @property
    def thinking_max_tokens_upper_bound(self) -> int: ...
    @property
    def non_thinking_max_tokens_upper_bound(self) -> int: ...
    @property
    def reasoning_content_behavior(self) -> ReasoningContentBehavior: ...
    @property
    def responses_web_search(self) -> WebSearchBehavior: ...
    @property
    def messages_web_search(self) -> WebSearchBehavior: ...
    @property
    def special_tokens(self) -> SpecialTokens: ...
    def with_policy(self, policy: Policy) -> ConversionOptions: ...
    def with_default_thinking_mode(self, default_thinking_mode: bool) -> ConversionOptions: ...
    def with_reasoning_content_behavior(
        self, reasoning_content_behavior: ReasoningContentBehavior
    ) -> ConversionOptions: ...
    def with_responses_web_search(self, responses_web_search: WebSearchBehavior) -> ConversionOptions: ...
    def with_messages_web_search(self, messages_web_search: WebSearchBehavior) -> ConversionOptions: ...
    def with_special_tokens(self, special_tokens: SpecialTokens) -> ConversionOptions: ...
    def with_model_alias(self, model: str, model_version: ModelVersion) -> ConversionOptions: ...
    def with_model_versions_by_name(self, model_versions_by_name: dict[str, ModelVersion]) -> ConversionOptions: ...
    def with_thinking_max_tokens_upper_bound(self, thinking_max_tokens_upper_bound: int) -> ConversionOptions: ...
    def with_non_thinking_max_tokens_upper_bound(self, non_thinking_max_tokens_upper_bound: int) -> ConversionOptions: ...

class ParsingOptions:
    """How a model's output is to be read. A conversion's also know which parameters its tools require."""

    def __init__(
        self,
        *,
        parse_tool_calls: bool = True,
        starts_in_tool_calls: bool = False,
        parse_json_output: bool = False,
        thinking_initial_stage: ThinkingInitialStage | None = None,
        stop_sequences: Sequence[str] | None = None,
        special_tokens: SpecialTokens | None = None,
        policy: Policy = "default",
    ) -> None: ...
    policy: Policy
    parse_tool_calls: bool
    starts_in_tool_calls: bool
    parse_json_output: bool
    thinking_initial_stage: ThinkingInitialStage | None
    @property
    def stop_sequences(self) -> list[str]: ...
    @stop_sequences.setter
    def stop_sequences(self, value: Sequence[str]) -> None: ...
    @property
    def special_tokens(self) -> SpecialTokens: ...
    @special_tokens.setter
    def special_tokens(self, value: SpecialTokens) -> None: ...

class OutputConstraint:
    @property
    def kind(self) -> str: ...
    @property
    def schema(self) -> str: ...

class InferenceOptions:
    """How to generate. Values are resolved: what thinking overrides is overridden already."""

    @property
    def max_tokens(self) -> int | None: ...
    @property
    def temperature(self) -> float | None: ...
    @property
    def top_p(self) -> float | None: ...
    @property
    def frequency_penalty(self) -> float:
        """0 under policy "strict", which ignores it (not in deepseek-recipe)."""
    @property
    def presence_penalty(self) -> float:
        """0 under policy "strict", which ignores it (not in deepseek-recipe)."""
    @property
    def logprobs(self) -> bool: ...
    @property
    def top_logprobs(self) -> int | None: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def output_constraint(self) -> OutputConstraint | None: ...

# -- requests ----------------------------------------------------------------------------------------------------------

class ConversationRequest:
    def __init__(self, conversation: Conversation, model_version: ModelVersion, *, policy: Policy = "default") -> None: ...
    @property
    def conversation(self) -> Conversation: ...
    @property
    def inference_options(self) -> InferenceOptions: ...
    @property
    def parsing_options(self) -> ParsingOptions: ...
    @property
    def model_version(self) -> ModelVersion: ...
    @property
    def stream(self) -> bool: ...
    def resolve_max_tokens(self, prompt_tokens: int, context_limit: int) -> int:
        """The tokens to generate at most. ConversionError when the prompt does not fit."""

class ChatCompletionRequest:
    """ValueError when the body's shape is wrong. Converting uses the request up, even when it fails."""

    def __init__(self, body: RequestBody, *, policy: Policy = "default") -> None: ...
    @property
    def model(self) -> str: ...
    @property
    def policy(self) -> Policy: ...
    def convert(self, options: ConversionOptions) -> ConversationRequest: ...
    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> ChatCompletionChunkGenerator: ...

class ResponsesRequest:
    """ValueError when the body's shape is wrong. Converting uses the request up, even when it fails."""

    def __init__(self, body: RequestBody, *, policy: Policy = "default") -> None: ...
    @property
    def model(self) -> str: ...
    @property
    def policy(self) -> Policy: ...
    def namespace_tool_map(self, options: ConversionOptions) -> dict[str, tuple[str, str]]: ...
    def echo(self) -> ResponsesEcho: ...
    def convert(self, options: ConversionOptions) -> ConversationRequest: ...
    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> ResponsesChunkGenerator: ...

class MessagesRequest:
    """ValueError when the body's shape is wrong. Converting uses the request up, even when it fails."""

    def __init__(self, body: RequestBody, *, policy: Policy = "default") -> None: ...
    @property
    def model(self) -> str: ...
    @property
    def policy(self) -> Policy: ...
    def convert(self, options: ConversionOptions) -> ConversationRequest: ...
    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> MessagesChunkGenerator: ...

class ResponsesEcho:
    """The settings of a request that its response repeats."""

    def __init__(self) -> None: ...
    @property
    def instructions(self) -> str | None: ...
    @property
    def max_output_tokens(self) -> int | None: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_logprobs(self) -> int: ...
    @property
    def user(self) -> str | None: ...

# -- answers -----------------------------------------------------------------------------------------------------------

class PromptUsage:
    def __init__(self, *, prompt_tokens: int = 0, prompt_cache_hit_tokens: int = 0) -> None: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def prompt_cache_hit_tokens(self) -> int: ...

class InferenceFinishReason(_Enumeration):
    Stop: InferenceFinishReason
    Length: InferenceFinishReason
    ContentFilter: InferenceFinishReason

class InferenceChunk:
    """One thing that a backend says. A property that a kind lacks is None."""

    @staticmethod
    def ready(*, prompt_usage: PromptUsage | None = None, system_fingerprint: str | None = None) -> InferenceChunk: ...
    @staticmethod
    def text(content: str, token_count: int = 0) -> InferenceChunk: ...
    @staticmethod
    def tokens(
        token_ids: Sequence[int], logprobs: Sequence[tuple[float, Sequence[tuple[int, float]]]] | None = None
    ) -> InferenceChunk: ...
    @staticmethod
    def finish(finish_reason: InferenceFinishReason) -> InferenceChunk: ...
    @property
    def kind(self) -> Literal["ready", "text", "tokens", "finish"]: ...
    @property
    def content(self) -> str | None: ...
    @property
    def token_ids(self) -> list[int] | None: ...
    @property
    def finish_reason(self) -> InferenceFinishReason | None: ...
    @property
    def prompt_usage(self) -> PromptUsage | None: ...
    @property
    def token_count(self) -> int | None: ...
    @property
    def system_fingerprint(self) -> str | None: ...

class ChatCompletionChunkGenerator:
    """Used up by the StreamProcessor that it is given to."""

class ResponsesChunkGenerator:
    """Used up by the StreamProcessor that it is given to, and by its own methods."""

    def with_namespace_tool_map(self, namespace_tool_map: dict[str, tuple[str, str]]) -> ResponsesChunkGenerator: ...
    def with_echo(self, echo: ResponsesEcho) -> ResponsesChunkGenerator: ...

class MessagesChunkGenerator:
    """Used up by the StreamProcessor that it is given to, and by its own methods."""

    def __init__(self, id: str, model: str, thinking_mode: bool) -> None: ...
    def with_signature(self, signature: str) -> MessagesChunkGenerator: ...

class ChatCompletionChunk:
    """Used up by the response that accumulates it."""

    def to_json(self) -> str: ...

class ResponsesStreamEvent:
    """Used up by the response that accumulates it."""

    def to_json(self) -> str: ...

class MessagesStreamEvent:
    """Used up by the response that accumulates it."""

    def to_json(self) -> str: ...

class ChatCompletionResponse:
    def __init__(self, id: str, model: str, created: int, prompt_tokens: int, prompt_cache_hit_tokens: int) -> None: ...
    def accumulate(self, chunk: ChatCompletionChunk) -> None: ...
    def to_json(self) -> str: ...
    @staticmethod
    def sse_event_name(chunk: ChatCompletionChunk) -> str | None: ...
    @staticmethod
    def sse_done_data() -> str | None: ...

class ResponsesResponse:
    def __init__(self, id: str, model: str, created: int, prompt_tokens: int, prompt_cache_hit_tokens: int) -> None: ...
    def accumulate(self, chunk: ResponsesStreamEvent) -> None: ...
    def to_json(self) -> str: ...
    @staticmethod
    def sse_event_name(chunk: ResponsesStreamEvent) -> str | None: ...
    @staticmethod
    def sse_done_data() -> str | None: ...

class MessagesResponse:
    def __init__(self, id: str, model: str, created: int, prompt_tokens: int, prompt_cache_hit_tokens: int) -> None: ...
    def accumulate(self, chunk: MessagesStreamEvent) -> None: ...
    def to_json(self) -> str: ...
    @staticmethod
    def sse_event_name(chunk: MessagesStreamEvent) -> str | None: ...
    @staticmethod
    def sse_done_data() -> str | None: ...

_Event: TypeAlias = ChatCompletionChunk | ResponsesStreamEvent | MessagesStreamEvent

class StreamProcessor:
    """Reads what a backend says and writes the events of one answer."""

    def __init__(
        self,
        generator: ChatCompletionChunkGenerator | ResponsesChunkGenerator | MessagesChunkGenerator,
        options: ParsingOptions,
        tokenizer: Tokenizer | None = None,
    ) -> None: ...
    @property
    def finished(self) -> bool: ...
    def push(self, chunk: InferenceChunk) -> list[_Event]:
        """The events that this chunk completed. RuntimeError closes the processor."""
    def finish(self) -> list[_Event]:
        """The end of the input: the last events; none when the answer has ended already."""
    def close(self) -> None:
        """Gives up; every later call is a RuntimeError."""

def _lay_out_image(
    width: int, height: int, detail: str, source_side: int, low_detail_side: int
) -> tuple[int, int, int]: ...
def _count_image_tokens(width: int, height: int) -> tuple[int, int, int]: ...

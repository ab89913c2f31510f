"""Seams between a client's request and the scheduler, and between its tokens and the client."""

from __future__ import annotations

from sglang_ascend.seam import HookKind, ProcessKind, Seam

_HTTP: tuple[ProcessKind, ...] = ("http_server", "tokenizer_worker")
_SRT = "sglang.srt."
_OPENAI = _SRT + "entrypoints.openai."
_MANAGER = _SRT + "managers.tokenizer_manager.TokenizerManager."
_OLLAMA = _SRT + "entrypoints.ollama.serving.OllamaServing."
_REASONING = _SRT + "parser.reasoning_parser.BaseReasoningFormatDetector."
_PARSER = _SRT + "function_call.function_call_parser.FunctionCallParser."


def _seam(
    name: str,
    target: str,
    kind: HookKind,
    hook: str,
    symptom: str,
    why_safe: str,
    remove_when: str,
    processes: tuple[ProcessKind, ...] = _HTTP,
) -> Seam:
    module = "sglang_ascend.frontend."
    return Seam(
        name, target, kind, module + hook, processes, symptom, why_safe, "none found", remove_when
    )


_REFUSALS: tuple[Seam, ...] = (
    _seam(
        "request-bounds",
        _MANAGER + "generate_request",
        "before",
        "refusal_hooks:check_before_generating",
        "token ids, counts and positions from a client end the scheduler or exhaust memory",
        "reads the request, changes nothing; raises the ValueError that entrances turn into 400",
        "SGLang bounds every field of frontend/request_bounds.py",
    ),
    _seam(
        "prompt-positions",
        _MANAGER + "_validate_one_request",
        "before",
        "refusal_hooks:check_prompt_logprobs",
        "positions behind the prompt's end are refused by the scheduler, in streams with 200",
        "reads the request, changes nothing",
        "SGLang compares them with the prompt's length before it sends the request",
    ),
    _seam(
        "detokenize-bounds",
        _OPENAI + "serving_tokenize.OpenAIServingDetokenize._handle_non_streaming_request",
        "before",
        "refusal_hooks:check_before_detokenizing",
        "/detokenize answers 500 to a token id outside the vocabulary",
        "reads the request, changes nothing",
        "SGLang bounds the ids of /detokenize",
    ),
    _seam(
        "native-stream-status",
        _SRT + "entrypoints.http_server.serve_generate_request",
        "around",
        "stream_hooks:native",
        "a refused streaming /generate has status 200 and an error event",
        "waits for the first event, which a client gets no later for it",
        "SGLang starts the generator before it answers, as its OpenAI entrances do",
    ),
    _seam(
        "chat-stream-status",
        _OPENAI + "serving_chat.OpenAIServingChat._handle_streaming_request",
        "around",
        "stream_hooks:openai",
        "a streaming chat that the scheduler refuses has status 200 and an error event",
        "SGLang waits for the first event already; this one reads it",
        "SGLang reads it, too",
    ),
    _seam(
        "completion-stream-status",
        _OPENAI + "serving_completions.OpenAIServingCompletion._handle_streaming_request",
        "around",
        "stream_hooks:openai",
        "a streaming completion that the scheduler refuses has status 200 and an error event",
        "SGLang waits for the first event already; this one reads it",
        "SGLang reads it, too",
    ),
    _seam(
        "anthropic-stream-status",
        _SRT + "entrypoints.anthropic.serving.AnthropicServing._handle_streaming",
        "around",
        "stream_hooks:anthropic",
        "a refused streaming /v1/messages has status 200 and an error event",
        "waits for the first two events, of which the first carries no text",
        "SGLang starts the generator before it answers",
    ),
    _seam(
        "responses-stream-status",
        _OPENAI + "serving_responses.OpenAIServingResponses._generate_with_builtin_tools",
        "before",
        "stream_hooks:responses",
        "a refused streaming /v1/responses has status 200 and a failed event",
        "the same checks as later, where a ValueError becomes a 400",
        "SGLang validates before it makes the first event",
    ),
    _seam(
        "ollama-chat-status",
        _OLLAMA + "handle_chat",
        "around",
        "ollama:handle",
        "a refused /api/chat has status 500, or breaks off in a stream",
        "acts on ValueError only",
        "SGLang's Ollama entrance catches ValueError",
    ),
    _seam(
        "ollama-generate-status",
        _OLLAMA + "handle_generate",
        "around",
        "ollama:handle",
        "a refused /api/generate has status 500, or breaks off in a stream",
        "acts on ValueError only",
        "SGLang's Ollama entrance catches ValueError",
    ),
    _seam(
        "ollama-seed",
        _OLLAMA + "_convert_options_to_sampling_params",
        "after",
        "ollama:rename_seed",
        "the option seed fails with status 500: there is no sampling parameter of that name",
        "renames one key",
        "SGLang maps seed to sampling_seed",
    ),
)

_TEXT: tuple[Seam, ...] = (
    _seam(
        "incremental-text",
        _SRT + "managers.detokenizer_manager.DetokenizerManager._decode_batch_token_id_output",
        "replace",
        "detokenizer_hooks:decode_batch",
        "text is repeated or lost where a chunk ends within a character",
        "same state dictionary and messages; equals decoding all tokens at once",
        "SGLang's text does not depend on where its chunks end",
        processes=("detokenizer",),
    ),
    _seam(
        "stop-text",
        _MANAGER + "_handle_batch_output",
        "before",
        "detokenizer_hooks:hold_back_stops",
        "the beginning of a stop string reaches the client",
        "delays at most the longest stop string; without stop strings texts pass unchanged",
        "SGLang holds back every possible beginning of a stop string",
    ),
    _seam(
        "stop-window",
        _SRT + "sampling.sampling_params.SamplingParams.normalize",
        "after",
        "detokenizer_hooks:widen_stop_window",
        "a stop string is missed where the model writes it with more tokens than the tokenizer",
        "the scheduler looks at a few more tokens for requests with stop strings",
        "SGLang sizes the window by the string's bytes",
    ),
    _seam(
        "chat-logprob-rows",
        _OPENAI + "serving_chat.OpenAIServingChat._generate_stream_content",
        "around",
        "logprob_rows:keep_rows",
        "streamed chat log-probabilities lack the tokens that add no text of their own",
        "adds a chunk with empty text, for requests with logprobs only",
        "SGLang sends the log-probabilities of every token",
    ),
    _seam(
        "reasoning-chunks",
        _REASONING + "parse_streaming_increment",
        "around",
        "reasoning_stream:increment",
        "text before the opening token is answer or reasoning according to where chunks end",
        "the same parser, one character at a time until the opening token is settled",
        "SGLang's reasoning parsers do not depend on chunks",
    ),
    _seam(
        "reasoning-whole",
        _REASONING + "_detect_and_parse_impl",
        "around",
        "reasoning_stream:whole",
        "a whole answer leaves the opening token in the reasoning where text stands before it",
        "what the stream gives: differs only where the token is not first, or is repeated",
        "with reasoning-chunks",
    ),
    _seam(
        "tool-call-chunks",
        _PARSER + "parse_stream_chunk",
        "around",
        "tool_hooks:push",
        "tool calls are lost or cut when a chunk holds more or less than the parser expects",
        "the parser for whole texts decides; text before a call still flows",
        "SGLang's streaming parsers agree with its parsers for whole texts",
    ),
    _seam(
        "tool-call-end",
        _PARSER + "parse_stream_end",
        "around",
        "tool_hooks:finish",
        "as tool-call-chunks",
        "as tool-call-chunks",
        "with tool-call-chunks",
    ),
    _seam(
        "tool-call-space",
        _PARSER + "parse_non_stream",
        "around",
        "tool_hooks:whole",
        "white space before the text of an answer with tool calls is lost, but not in a stream",
        "changes white space only",
        "with tool-call-chunks",
    ),
    _seam(
        "tool-call-abort",
        _OPENAI + "serving_chat.OpenAIServingChat._process_tool_call_stream",
        "before",
        "tool_hooks:flush_at_any_end",
        "a stream that is aborted loses the text that its parser held back",
        "the same end that other streams have",
        "with tool-call-chunks",
    ),
    _seam(
        "forced-call-chunks",
        _SRT + "function_call.json_array_parser.JsonArrayParser.parse_streaming_increment",
        "replace",
        "tool_hooks:push_json",
        "as tool-call-chunks, for tool_choice required or a named tool",
        "the rules for whole answers decide",
        "with tool-call-chunks",
    ),
    _seam(
        "forced-call-end",
        _SRT + "function_call.json_array_parser.JsonArrayParser.finish",
        "replace",
        "tool_hooks:finish_json",
        "as forced-call-chunks",
        "as forced-call-chunks",
        "with tool-call-chunks",
    ),
    _seam(
        "ollama-chat-end",
        _OLLAMA + "_stream_chat_response",
        "around",
        "ollama:stream",
        "a streamed /api/chat lacks the text of its last chunk",
        "the same chunks, the last one in two",
        "SGLang sends the last chunk's text",
    ),
    _seam(
        "ollama-generate-end",
        _OLLAMA + "_stream_generate_response",
        "around",
        "ollama:stream",
        "a streamed /api/generate lacks the text of its last chunk",
        "the same chunks, the last one in two",
        "SGLang sends the last chunk's text",
    ),
)

FRONTEND_SEAMS: tuple[Seam, ...] = _REFUSALS + _TEXT

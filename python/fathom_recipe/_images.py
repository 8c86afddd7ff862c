"""Images: the arithmetic of the codec, and a resolver around a fetcher and a preprocessor of the caller's.

The codec neither opens connections nor decodes pixels. ImageResolver therefore takes two functions (or objects with the
methods `fetch` and `preprocess`) instead of the wheel's ReqwestImageFetcher and OpenCvImagePreprocessor; the limits of a
request, data URLs and the wording of errors are as in the wheel.
"""

from __future__ import annotations

import base64
import binascii
import re
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from . import _native
from ._native import ImageSource

MOST_SIDE = 8192  # of a source, in pixels
LOW_DETAIL_SIDE = 512

_MEBIBYTE = 1 << 20
_MOST_IMAGES = 600
_MOST_BYTES = 32 * _MEBIBYTE
_MOST_BYTES_TOGETHER = 64 * _MEBIBYTE
_DATA_URL = re.compile(r"data:(?P<type>[^,]*),(?P<body>.*)", re.IGNORECASE | re.DOTALL)


class ImageError(Exception):
    """An image that cannot be resolved. `kind` names the reason, `is_retryable` whether trying again may help."""

    kind: str
    is_retryable: bool

    def __init__(self, message: str = "", kind: str = "Client", is_retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_retryable = is_retryable


class CalcResizeError(ValueError):
    """No size settles for this image."""


def lay_out_image(
    width: int,
    height: int,
    detail: str = "high",
    max_dimension_px: int = MOST_SIDE,
    low_detail_max_dimension_px: int = LOW_DETAIL_SIDE,
) -> tuple[int, int, int]:
    """The size in pixels that a source image is to be resized to, and its tokens: (width, height, tokens).

    Raises ImageError (kind "ImageDimensionsTooLarge") for a side below 1 or above `max_dimension_px`, CalcResizeError
    when no size settles, ValueError for an unknown detail.
    """
    if min(width, height) < 1 or max(width, height) > max_dimension_px:
        raise ImageError(f"the image has {width} x {height} pixels: each side must be 1 to {max_dimension_px}",
                         "ImageDimensionsTooLarge")
    try:
        return _native._lay_out_image(width, height, detail, max_dimension_px, low_detail_max_dimension_px)
    except RuntimeError as error:
        raise CalcResizeError(str(error)) from None


def count_image_tokens(width: int, height: int) -> int:
    """The tokens of an image that has been resized already. Raises CalcResizeError when there is no such size."""
    try:
        return _native._count_image_tokens(width, height)[2]
    except (RuntimeError, ValueError) as error:
        raise CalcResizeError(str(error)) from None


def _expect(value: Any, kinds: type | tuple[type, ...], argument: str) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(f"argument '{argument}': {type(value).__name__} is not accepted")
    return value


class ImageInfo:
    """An image as the backend gets it: encoded bytes, and its size in pixels after preprocessing."""

    __slots__ = ("_data", "_width", "_height")

    def __init__(self, data: bytes, width: int, height: int) -> None:
        self._data = bytes(_expect(data, bytes, "data"))
        self._width = _expect(width, int, "width")
        self._height = _expect(height, int, "height")
        if width < 0 or height < 0:
            raise OverflowError("an image has no negative size")

    @property
    def data(self) -> bytes:
        return self._data

    @property
    def width(self) -> int:
        return self._width

    @property
    def height(self) -> int:
        return self._height


class MultiModalData:
    """Images in the order of their placeholders in a prompt."""

    __slots__ = ("_images",)

    def __init__(self, images: Sequence[ImageInfo] | None = None) -> None:
        self._images = [_expect(image, ImageInfo, "images") for image in images or ()]

    @property
    def images(self) -> list[ImageInfo]:
        return list(self._images)

    def is_empty(self) -> bool:
        return not self._images

    def image_token_adjustment(self) -> int:
        """Tokens that the images take beyond their one placeholder each."""
        return sum(count_image_tokens(image.width, image.height) - 1 for image in self._images)


class ImageQuota:
    """Images and bytes of one request so far: give the same quota to every call of `resolve` for it."""

    __slots__ = ("_count", "_bytes")

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0

    def image_count(self) -> int:
        return self._count

    def byte_size(self) -> int:
        return self._bytes


class PreprocessOptions:
    """What a preprocessor is to do with one image."""

    __slots__ = ("_detail", "_most", "_low")

    def __init__(self, detail: str, max_dimension_px: int, low_detail_max_dimension_px: int) -> None:
        if _expect(detail, str, "detail") not in ("low", "high", "original", "auto"):
            raise ValueError(f'invalid detail "{detail}"; expected "low", "high", "original", or "auto"')
        self._detail = detail
        self._most = _expect(max_dimension_px, int, "max_dimension_px")
        self._low = _expect(low_detail_max_dimension_px, int, "low_detail_max_dimension_px")

    @property
    def detail(self) -> str:
        return self._detail

    @property
    def max_dimension_px(self) -> int:
        return self._most

    @property
    def low_detail_max_dimension_px(self) -> int:
        return self._low

    def lay_out(self, width: int, height: int) -> tuple[int, int, int]:
        """`lay_out_image` under these options: what a preprocessor resizes a decoded image to."""
        return lay_out_image(width, height, self._detail, self._most, self._low)


class ReqwestImageFetcher:
    """Not in the codec, which opens no connection: give ImageResolver a function `fetch(url) -> bytes`."""

    def __init__(self) -> None:
        raise NotImplementedError(
            "fathom_recipe opens no connections: give ImageResolver a function fetch(url) -> bytes of your HTTP client")

    @staticmethod
    def with_max_bytes(max_bytes: int) -> ReqwestImageFetcher:
        return ReqwestImageFetcher()

    def with_destination_filter(self, destination_filter: Callable[[str, str], bool]) -> ReqwestImageFetcher:
        return ReqwestImageFetcher()

    def fetch(self, url: str) -> bytes:
        raise NotImplementedError


class OpenCvImagePreprocessor:
    """Not in the codec, which decodes no pixels: give ImageResolver a function `preprocess(data, options)`."""

    def __init__(self) -> None:
        raise NotImplementedError(
            "fathom_recipe decodes no images: give ImageResolver a function preprocess(data, options) -> ImageInfo of "
            "your image library; options.lay_out(width, height) tells the size")

    def preprocess(self, data: bytes, options: PreprocessOptions) -> ImageInfo:
        raise NotImplementedError


def _function(given: Any, method: str, argument: str) -> Callable[..., Any]:
    function = getattr(given, method, given)
    if not callable(function):
        raise TypeError(f"argument '{argument}': neither callable nor an object with the method {method}")
    return function


def _decoded(data_url: str) -> bytes:
    match = _DATA_URL.fullmatch(data_url)
    if match is None:
        raise ImageError("not a data URL", "InvalidDataUrl")
    body = urllib.parse.unquote_to_bytes(match["body"])
    if not match["type"].lower().endswith(";base64"):
        return body
    body = b"".join(body.split()).rstrip(b"=")
    try:
        return base64.b64decode(body + b"=" * (-len(body) % 4), validate=True)
    except binascii.Error:
        raise ImageError("Invalid base64 data", "InvalidDataUrl") from None


class ImageResolver:
    """Turns the image sources of a prompt into what the backend gets.

    `fetcher` is a function url -> bytes, or an object with such a method `fetch`; `preprocessor` is a function
    (bytes, PreprocessOptions) -> ImageInfo, or an object with such a method `preprocess`. An ImageError of theirs gets
    the path of its image in front; another exception of the fetcher becomes a retryable ImageError of kind "Fetch",
    one of the preprocessor an ImageError of kind "Decode".
    """

    def __init__(
        self,
        fetcher: Callable[[str], bytes] | Any,
        preprocessor: Callable[[bytes, PreprocessOptions], ImageInfo] | Any,
    ) -> None:
        self._fetch = _function(fetcher, "fetch", "fetcher")
        self._preprocess = _function(preprocessor, "preprocess", "preprocessor")

    def resolve(self, sources: Sequence[ImageSource], quota: ImageQuota) -> MultiModalData:
        """Resolves the sources in order. A call that fails leaves the quota as it was."""
        _expect(quota, ImageQuota, "quota")
        sources = [_expect(source, ImageSource, "sources") for source in sources]
        count = quota._count + len(sources)
        if count > _MOST_IMAGES:
            raise ImageError(f"Too many images: max {_MOST_IMAGES} images per request, got {count}", "TooManyImages")
        size, images = quota._bytes, []
        for number, source in enumerate(sources):
            try:
                data = self._bytes_of(source)
                size += len(data)
                if size > _MOST_BYTES_TOGETHER:
                    raise ImageError(f"Total image size exceeds the limit: max {_MOST_BYTES_TOGETHER // _MEBIBYTE} MB "
                                     f"per request, got {-(-size // _MEBIBYTE)} MB", "TotalSizeTooLarge")
                images.append(self._preprocessed(data, source.detail))
            except ImageError as error:
                place = f"{source.path}." if source.path else ""
                raise ImageError(f"{place}image[{number}]: {error}", error.kind, error.is_retryable) from error.__cause__
        quota._count, quota._bytes = count, size
        return MultiModalData(images)

    def _bytes_of(self, source: ImageSource) -> bytes:
        if source.kind == "url":
            try:
                data = self._fetch(source.url)
            except ImageError:
                raise
            except Exception as error:
                raise ImageError(f"Failed to download image from {source.url}", "Fetch", True) from error
        else:
            data = source.data if source.kind == "bytes" else _decoded(source.data_url)
        if not _expect(data, bytes, "fetcher's result"):
            raise ImageError("the image is empty", "EmptyImage")
        if len(data) > _MOST_BYTES:
            raise ImageError(f"image file size exceeds limit {_MOST_BYTES // _MEBIBYTE} MB", "ImageTooLarge")
        return data

    def _preprocessed(self, data: bytes, detail: str) -> ImageInfo:
        try:
            image = self._preprocess(data, PreprocessOptions(detail, MOST_SIDE, LOW_DETAIL_SIDE))
        except ImageError:
            raise
        except Exception as error:
            raise ImageError(f"the image cannot be read: {error}", "Decode") from error
        return _expect(image, ImageInfo, "preprocessor's result")

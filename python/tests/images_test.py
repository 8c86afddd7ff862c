"""Sizes and token counts of images (vectors/recipe/images.jsonl), and the resolver around functions of the caller's."""
import base64
import unittest

import fathom_recipe as recipe
from shared import rows


def preprocess(data, options):
    if data == b"broken":
        raise OSError("no picture")
    width, height, _ = options.lay_out(1000, 500)
    return recipe.ImageInfo(data, width, height)


def fetch(url):
    if url.endswith("/gone"):
        raise OSError("gone")
    return b"fetched " + url.encode()


class Layout(unittest.TestCase):
    def test_every_size_and_count_is_that_of_the_vectors(self):
        checked = 0
        for row in rows("images.jsonl"):
            expect, size = row["expect"], (row["width"], row["height"])
            if expect.get("error_kind", "ImageDimensionsTooLarge") != "ImageDimensionsTooLarge":
                continue  # decoding is not here
            with self.subTest(row["name"]):
                if row["kind"] == "token_count":
                    self.assertEqual(recipe.count_image_tokens(*size), expect["tokens"])
                    continue
                given = {name: row[name] for name in ("detail", "max_dimension_px", "low_detail_max_dimension_px")
                         if name in row}
                if "error_kind" in expect:
                    with self.assertRaises(recipe.ImageError) as caught:
                        recipe.lay_out_image(*size, **given)
                    self.assertEqual(caught.exception.kind, expect["error_kind"])
                    continue
                width, height, tokens = recipe.lay_out_image(*size, **given)
                self.assertEqual((width, height), (expect["width"], expect["height"]))
                if "tokens" in expect:
                    self.assertEqual(tokens, expect["tokens"])
            checked += 1
        self.assertGreater(checked, 20)

    def test_the_adjustment_counts_all_but_the_placeholders(self):
        image = recipe.ImageInfo(b"x", 28, 28)
        self.assertEqual(recipe.MultiModalData([image, image]).image_token_adjustment(), 2 * 183)
        self.assertTrue(recipe.MultiModalData().is_empty())


class Resolver(unittest.TestCase):
    def setUp(self):
        self.resolver, self.quota = recipe.ImageResolver(fetch, preprocess), recipe.ImageQuota()

    def refused(self, source):
        with self.assertRaises(recipe.ImageError) as caught:
            self.resolver.resolve([recipe.BytesImageSource(b"ok"), source], self.quota)
        self.assertEqual((self.quota.image_count(), self.quota.byte_size()), (0, 0))
        return caught.exception

    def test_all_kinds_of_sources_are_resolved_in_order(self):
        body = base64.b64encode(b"inside").decode().rstrip("=")
        sources = [
            recipe.UrlImageSource("http://a/b"),
            recipe.DataUrlImageSource(f"DATA:image/png;x=y;BASE64,{body[:3]}\n{body[3:]}"),
            recipe.DataUrlImageSource("data:image/png,a%20b"),
            recipe.BytesImageSource(b"given", "low"),
        ]
        images = self.resolver.resolve(sources, self.quota).images
        self.assertEqual([i.data for i in images], [b"fetched http://a/b", b"inside", b"a b", b"given"])
        self.assertEqual((images[0].width, images[0].height), recipe.lay_out_image(1000, 500)[:2])
        self.assertEqual((images[3].width, images[3].height), recipe.lay_out_image(1000, 500, "low")[:2])
        self.assertEqual((self.quota.image_count(), self.quota.byte_size()), (4, 32))

    def test_errors_name_the_place_and_leave_the_quota(self):
        error = self.refused(recipe.UrlImageSource("http://a/gone", path=".messages[0]"))
        self.assertEqual(str(error), ".messages[0].image[1]: Failed to download image from http://a/gone")
        self.assertEqual((error.kind, error.is_retryable), ("Fetch", True))
        self.assertEqual(self.refused(recipe.BytesImageSource(b"broken")).kind, "Decode")
        self.assertEqual(self.refused(recipe.BytesImageSource(b"")).kind, "EmptyImage")
        self.assertEqual(self.refused(recipe.DataUrlImageSource("data:image/png;base64,?")).kind, "InvalidDataUrl")
        self.assertEqual(self.refused(recipe.BytesImageSource(b"x" * ((32 << 20) + 1))).kind, "ImageTooLarge")

    def test_a_request_has_at_most_600_images_and_64_mebibytes(self):
        with self.assertRaises(recipe.ImageError) as caught:
            self.resolver.resolve([recipe.BytesImageSource(b"x")] * 601, self.quota)
        self.assertEqual(str(caught.exception), "Too many images: max 600 images per request, got 601")
        half = recipe.BytesImageSource(b"x" * (32 << 20))
        self.resolver.resolve([half], self.quota)
        self.resolver.resolve([half], self.quota)
        with self.assertRaises(recipe.ImageError) as caught:
            self.resolver.resolve([recipe.BytesImageSource(b"x")], self.quota)
        self.assertEqual(caught.exception.kind, "TotalSizeTooLarge")
        self.assertEqual(self.quota.image_count(), 2)


if __name__ == "__main__":
    unittest.main()

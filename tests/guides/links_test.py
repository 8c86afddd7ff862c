"""Every relative link of README.md, CHANGELOG.md and docs/ leads to a file of this checkout."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Links(unittest.TestCase):
    def test_every_relative_link_leads_to_a_file(self):
        pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
        broken = []
        for page in pages:
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
                for target in LINK.findall(line):
                    path = target.split("#")[0]
                    if path and "://" not in target and not (page.parent / path).exists():
                        broken.append(f"{page.relative_to(ROOT)}:{number}: {target}")
        self.assertEqual(broken, [])


if __name__ == "__main__":
    unittest.main()

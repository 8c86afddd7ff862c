"""scripts/check-sass: what it finds in a dump, and what it says where it cannot look."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-sass"

KERNEL = """
	code for sm_100a
		Function : _ZN6fathom4cuda5sm10013memory_kernelILNS_5DTypeE{type}ELb{scaled}EEEvNS0_7ProductE
        /*0000*/                   LDC R1, c[0x0][0x37c] ;          /* 0x0000df00ff017b82 */
                                                                    /* 0x000fe20000000800 */
        /*0010*/              @!P0 LDGSTS.E.BYPASS.128 [R2], desc[UR4][R4.64] ;
        /*0020*/                   UBLKCP.S.G [UR4], [UR6], UR8 ;
        /*a8f0*/                   {product} gdesc[UR26], gdesc[UR28], tmem[UR36] ;
        /*a900*/                   @UP1 UTCCP.T.S.4x32dp128bit tmem[UR16+0x8], gdesc[UR24] ;
        /*a910*/                   UTCBAR [UR52], URZ ;
        /*a920*/                   LDTM.x32 R4, tmem[UR4] ;
{more}"""


def dump(product="UTCHMMA", scaled=0, more="", types=(1, 2, 4)):
    return "".join(KERNEL.format(type=t, scaled=scaled, product=product, more=more) for t in types)


class CheckSass(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "dump"
            path.write_text(text)
            return subprocess.run([sys.executable, SCRIPT, "--text", path], capture_output=True, text=True)

    def test_a_kernel_is_shown_with_its_instructions(self):
        ran = self.check(dump())
        line = next(line for line in ran.stdout.splitlines() if "DTypeE4ELb0" in line)
        self.assertIn("sm_100a", line)
        self.assertIn("UTCHMMA 1, UTCCP 1, UTCBAR 1, LDTM 1, UBLKCP 1, LDGSTS 1, 7 instructions", line)

    def test_a_kernel_without_its_instruction_is_found(self):
        ran = self.check(dump(product="HMMA.16816.F32"))
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no UTCHMMA", ran.stderr)

    def test_spilled_registers_are_found(self):
        ran = self.check(dump(more="        /*a930*/                   STL [R1+0x4], R2 ;\n"))
        self.assertEqual(ran.returncode, 1)
        self.assertIn("1 accesses of local memory", ran.stderr)

    def test_a_missing_kernel_is_found_and_other_architectures_are_not_asked_for(self):
        ran = self.check(dump(types=(1, 2)))
        self.assertIn("2 kernels, expected 3", ran.stderr)
        self.assertNotIn("sm_90a", ran.stderr)

    def test_a_file_without_machine_code_is_an_error(self):
        ran = self.check("nothing here\n")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no machine code", ran.stderr)

    def test_without_cuobjdump_it_is_skipped_and_says_so(self):
        ran = subprocess.run([sys.executable, SCRIPT, SCRIPT], capture_output=True, text=True,
                             env={**os.environ, "CUOBJDUMP": "no-such-program"})
        self.assertEqual(ran.returncode, 77)
        self.assertIn("skipped: there is no cuobjdump", ran.stderr)

    def test_mistakes_in_the_command_exit_2(self):
        for arguments in ([], ["no-such-file"]):
            ran = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
            self.assertEqual(ran.returncode, 2, arguments)


if __name__ == "__main__":
    unittest.main()

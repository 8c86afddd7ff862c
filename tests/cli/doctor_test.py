"""doctor: peer access between GPUs and the disk of --kv-disk (design/cli.md 5)."""
import os
import shutil
import signal
import subprocess
import time
import unittest

from program import PROGRAM, ProgramTest, environment, run


class PeerAccess(ProgramTest):
    def test_it_says_whether_there_is_a_gpu_and_who_reaches_whom(self):
        line = next(line for line in self.succeeds("doctor").out.splitlines() if "peer access" in line)
        tree = self.succeeds("doctor", "--json").json()["machine"]["peer_access"]
        if not tree["driver"]:
            self.assertIn("no NVIDIA device", line)
            self.assertEqual(tree["devices"], [])
        for number, device in enumerate(tree["devices"]):
            self.assertNotIn(number, device["reads"])


class KvDisk(ProgramTest):
    def test_it_reports_both_speeds_and_leaves_nothing_behind(self):
        folder = self.folder()
        out = self.succeeds("doctor", "--kv-disk", folder).out
        self.assertRegex(out, r"KV disk +[\d.]+ GB/s written, [\d.]+ GB/s read \([\d.]+ MB, .*\), [\d.]+ [kMGT]?B free")
        disk = self.succeeds("doctor", "--json", env={"FATHOM_KV_DISK": str(folder)}).json()["machine"]["kv_disk"]
        self.assertGreater(disk["write_bytes_per_s"], 0)
        self.assertGreater(disk["read_bytes_per_s"], 0)
        self.assertLessEqual(disk["measured_bytes"], 256 << 20)
        self.assertEqual((disk["folder"], disk["problem"]), (str(folder), None))
        self.assertEqual(list(folder.iterdir()), [])

    def test_without_it_nothing_is_written_and_the_report_says_how(self):
        self.assertIn("not measured; pass --kv-disk DIR", self.succeeds("doctor").out)
        self.assertIsNone(self.succeeds("doctor", "--json").json()["machine"]["kv_disk"])

    def test_a_killed_measurement_leaves_nothing_behind(self):
        for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            folder = self.folder()
            started = subprocess.Popen([PROGRAM, "doctor", "--kv-disk", folder], env=environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.15)
            started.send_signal(how)
            started.wait(timeout=30)
            self.assertEqual(list(folder.iterdir()), [])

    def refused(self, code, folder, *mentions):
        """The report stands, one error line follows."""
        ran = run("doctor", "--kv-disk", folder)
        self.assertEqual(ran.code, code, ran.err)
        self.assertIn("nothing is missing", ran.out)
        self.assertIn("KV disk       not measured: ", ran.out)
        self.assertEqual(ran.err.count("\n"), 1)
        for text in (f"--kv-disk {folder}", *mentions):
            self.assertIn(text, ran.err)

    def test_a_folder_that_is_none(self):
        file = self.folder() / "file"
        file.write_text("")
        self.refused(3, file.with_name("nothing"), "no such folder", "make it")
        self.refused(3, file, "no folder")

    def test_a_folder_that_cannot_be_written(self):
        folder = self.folder()
        folder.chmod(0o555)
        if os.access(folder, os.W_OK):  # root may write everywhere but into the kernel's own file systems
            folder = "/sys"
        self.refused(1, folder, "cannot be written", "right to write")

    def test_a_full_disk(self):
        if shutil.which("unshare") is None:
            self.skipTest("unshare is not installed")
        folder = self.folder()
        probe = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1M", "none", folder],
                               capture_output=True)
        if probe.returncode != 0:
            self.skipTest("no right to mount a small file system")
        done = subprocess.run(["unshare", "-rm", "sh", "-c",
                               'mount -t tmpfs -o size=1M none "$1" && exec "$2" doctor --kv-disk "$1"', "sh", folder,
                               PROGRAM], env=environment(), capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the disk is full", done.stderr.decode())
        self.assertIn("free some space", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()

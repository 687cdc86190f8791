"""Parts of compare_cpu.py."""

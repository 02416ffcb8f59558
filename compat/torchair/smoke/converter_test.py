"""python3 smoke/converter_test.py [prefix]: run the declared cases of the converters, compiled and eagerly."""
import sys

from tensortap.converter_test import main

sys.exit(main(sys.argv[1:]))

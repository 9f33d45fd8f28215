#!/bin/sh
echo "no coverage report: this build has no coverage tools" >&2

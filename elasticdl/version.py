"""The version of this package: what every part compares that meets another installation."""

VERSION = "2.0.0.dev0"

"""The command line `tfrl`, with one file for each verb."""

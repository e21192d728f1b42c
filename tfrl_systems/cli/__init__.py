"""The command line `tfrl`, one file for each verb."""

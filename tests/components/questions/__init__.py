"""Tests of questions to the user and the client, over all the rounds that they take."""

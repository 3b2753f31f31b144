"""What holds for the repository as a whole: words, shape, translations, distributions, rings."""

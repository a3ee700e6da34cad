join-title = आप कतार में लगने वाले हैं
join-lead = आगंतुक उसी क्रम में अंदर जाते हैं जिसमें वे आए।
join-button = कतार में लगें
scheduled-title = अभी खुला नहीं है
scheduled-lead = आपकी जगह सुरक्षित है। खुलने पर आगंतुक क्रम से अंदर जाते हैं।
waiting-title = आप कतार में हैं
waiting-lead = आगंतुक उसी क्रम में अंदर जाते हैं जिसमें वे आए।
almost-title = बस थोड़ी देर
almost-lead = अगली बारी आपकी है। कृपया यह पेज खुला रखें।
paused-title = कतार रुकी हुई है
paused-lead = आयोजक ने फ़िलहाल प्रवेश रोका है। आपकी जगह बनी रहती है।
admitted-title = आपकी बारी है
admitted-lead = समय समाप्त होने से पहले अंदर जाएँ।
admitted-button = अंदर जाएँ
full-title = कतार भरी हुई है
full-lead = कृपया थोड़ी देर में फिर कोशिश करें।
expired-title = आपकी जगह समाप्त हो गई
expired-lead = इस पेज से बहुत देर तक संपर्क नहीं रहा, या आपकी विज़िट पूरी हो गई।
left-title = आपने कतार छोड़ दी
left-lead = आपकी जगह अगले व्यक्ति को मिल गई।
over-title = यह कतार बंद है
over-lead = आयोजक ने इसे बंद कर दिया है। अब कोई अंदर नहीं जा सकता।
lost-title = संपर्क नहीं है
lost-lead = कनेक्शन टूट गया। आपकी जगह बनी रहती है; यह पेज अपने-आप फिर कोशिश करता है।
cookies-title = कृपया कुकी की अनुमति दें
cookies-lead = आपकी जगह एक कुकी में रखी जाती है, और आपके ब्राउज़र ने उसे नहीं रखा। इस साइट के लिए कुकी की अनुमति दें और फिर से कतार में लगें।
rejoin-button = फिर से कतार में लगें
ahead = { $count ->
    [0] आपसे आगे कोई नहीं है
    [one] आपसे आगे { $count } व्यक्ति
   *[other] आपसे आगे { $count } लोग
}
wait-label = अनुमानित प्रतीक्षा
wait-soon = एक मिनट से कम
wait-minutes = { $to ->
    [one] लगभग { $to } मिनट
   *[other] { $from }–{ $to } मिनट
}
wait-hours = { $to ->
    [one] लगभग { $to } घंटा
   *[other] { $from }–{ $to } घंटे
}
wait-unknown = अभी पता नहीं
number-label = आपका नंबर
progress-label = कतार में लगने से अब तक
opens-label = खुलने में
ends-label = शेष समय
updated-label = पिछला अपडेट
kept = यह पेज दोबारा लोड करने या बंद करने पर भी आपकी जगह बनी रहती है।
check-button = अभी देखें
auto-button = अपने-आप अपडेट करें
leave-button = कतार छोड़ें
move-title = दूसरे डिवाइस पर जारी रखें
move-lead = दूसरे डिवाइस पर यह लिंक खोलें। यही आपकी जगह है: इसे किसी को न दिखाएँ।
soldout-title = सब समाप्त
soldout-lead = सभी दिए जा चुके हैं।
early-title = अभी नहीं खुला
early-lead = खुलने के बाद आप ले सकते हैं। यह पेज अपने आप खुलेगा।
claim-title = अब आप ले सकते हैं
claim-lead = अपना अभी लें। हर व्यक्ति के लिए एक।
claim-button = अभी लें
claimed-title = यह आपका है
claimed-lead = यह कोड लिख लें। यह पेज इसे इस ब्राउज़र में फिर दिखाएगा।
ended-title = समाप्त हो गया
ended-lead = यहाँ अब कुछ नहीं मिल सकता।
serial-label = आपका क्रमांक
code-label = आपका कोड
remaining = { $count ->
    [0] कोई शेष नहीं
   *[other] { $count } शेष
}
language-label = भाषा
